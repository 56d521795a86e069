#include "engine/processes/data_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/absolute_path.hpp"
#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/lock_file.hpp"
#include "base/log.hpp"
#include "base/process/program.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"
#include "datasets/dataset.hpp"
#include "elastic/net/handshake.hpp"
#include "engine/membership/run_place.hpp"
#include "engine/membership/worker_join.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "engine/transfers/data_transfer.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

constexpr Duration kCommandMax = seconds(6L * 3600);
constexpr Duration kRetryAfter = seconds(1);
constexpr int kFruitlessMax = 10;  // connections in a row that break before a byte is received
constexpr Duration kSayEvery = seconds(10);
constexpr std::uint64_t kSpareBytes = 64U << 20;
constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

Error io_error(const std::string& what, const fs::path& path, const std::error_code& why) {
  return {Errc::kIo, fmt::format("cannot {} {}: {}", what, path.string(), why.message())};
}

/// Whether the worker was asked to leave meanwhile.
using CalledOff = std::function<bool()>;

Error called_off() {
  return {Errc::kAborted, "the worker was asked to leave"};
}

constexpr const char* kFolderPrefix = "data-";  // of a data set in the cache
constexpr const char* kPartial = ".partial-";

/// A folder of the cache that comes to be complete or not at all.
class Place {
 public:
  Place(fs::path path, const CalledOff& is_called_off)
      : path_(std::move(path)), is_called_off_(is_called_off) {}

  /// Returns the path of the folder. If it does not exist yet, calls `fill` with an empty folder
  /// and renames that when it is complete; after an error nothing is left. If another worker of
  /// this host is filling the folder, waits for it.
  [[nodiscard]] Result<std::string> filled(
      const std::function<Result<void>(const std::string& empty)>& fill) const {
    if (is_there()) {
      return what_is_there();
    }
    TRY_ASSIGN(LockFile held, lock());
    Result<std::string> done = is_there() ? Result<std::string>(what_is_there()) : fetched(fill);
    release(std::move(held), path_.filename().string());
    return done;
  }

 private:
  [[nodiscard]] bool is_there() const {
    std::error_code absent;
    return fs::exists(path_, absent);
  }
  [[nodiscard]] std::string what_is_there() const {
    log::info(path_.string() + " was filled earlier; remove it to fetch the data set again");
    return path_.string();
  }
  /// With the lock.
  [[nodiscard]] Result<std::string> fetched(
      const std::function<Result<void>(const std::string& empty)>& fill) const {
    remove_partial_ones();
    // Each process has a name of its own: the command of one that was killed may still write.
    const std::string partial =
        fmt::format("{}{}{}-{}", path_.string(), kPartial, ::getpid(), monotonic_now().ns);
    Result<void> done = make_directories(partial);
    if (done.ok()) {
      done = fill(partial);
    }
    if (done.ok()) {
      done = take_place(partial);
    }
    if (!done.ok()) {
      remove_partial_ones();
      return std::move(done).error();
    }
    return path_.string();
  }
  [[nodiscard]] std::string lock_of(const std::string& filled) const {
    return (path_.parent_path() / (filled + ".lock")).string();
  }
  /// Removes the file, too. Workers that wait for the lock make it again.
  void release(LockFile lock, const std::string& filled) const {
    (void)::unlink(lock_of(filled).c_str());
    std::move(lock).discard();
  }
  [[nodiscard]] Result<LockFile> lock() const {
    const std::string file = lock_of(path_.filename().string());
    Result<LockFile> lock = LockFile::take(file, Duration(0));
    if (lock.ok() || lock.error().code != Errc::kRefused) {
      return lock;
    }
    log::info(fmt::format("waiting for another worker of this host that fetches the data set to {}",
                          path_.string()));
    do {
      if (is_called_off_()) {
        return called_off();
      }
      lock = LockFile::take(file, kRetryAfter);
    } while (!lock.ok() && lock.error().code == Errc::kRefused);
    return lock;
  }
  /// Removes partial folders that killed workers left: those of this data set, because this process
  /// holds their lock, and those of other data sets whose lock is free. A data set that has changed
  /// may never be requested again under its old name.
  void remove_partial_ones() const {
    std::error_code ignored;
    const fs::path folder = path_.parent_path();
    for (const std::string& name : names_in(folder.string())) {
      const std::size_t end = name.starts_with(kFolderPrefix) ? name.find(kPartial) : name.npos;
      if (end == name.npos) {
        continue;
      }
      const std::string filled = name.substr(0, end);
      if (filled == path_.filename()) {
        fs::remove_all(folder / name, ignored);
      } else if (Result<LockFile> lock = LockFile::take(lock_of(filled), Duration(0)); lock.ok()) {
        fs::remove_all(folder / name, ignored);
        release(std::move(lock).value(), filled);
      }
    }
  }
  [[nodiscard]] Result<void> take_place(const std::string& partial) const {
    const UniqueFd folder(::open(partial.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // The content of a complete folder must also exist after a loss of power.
    if (!folder.valid() || ::syncfs(folder.get()) != 0) {
      return file_error("cannot flush", partial);
    }
    std::error_code failure;
    fs::rename(partial, path_, failure);
    return failure ? Result<void>(io_error("make", path_, failure)) : Result<void>();
  }

  fs::path path_;
  const CalledOff& is_called_off_;
};

Result<void> check_room(const std::string& folder, std::uint64_t bytes) {
  std::error_code unknown;
  const fs::space_info space = fs::space(folder, unknown);
  if (!unknown && space.available < bytes + kSpareBytes) {
    return Error{Errc::kIo,
                 fmt::format("{} has {} MiB left; the data set needs {}, and {} more are kept free "
                             "for others; see --cache-dir",
                             folder, space.available >> 20, (bytes >> 20) + 1, kSpareBytes >> 20)};
  }
  return {};
}

/// Logs the progress every few seconds.
class Progress {
 public:
  explicit Progress(std::uint64_t bytes) : bytes_(bytes) {}
  void operator()(std::uint64_t received) {
    if (const Instant now = monotonic_now(); now - logged_at_ > kSayEvery) {
      logged_at_ = now;
      log::info(
          fmt::format("{} of {} MiB of the data set have arrived", received >> 20, bytes_ >> 20));
    }
  }

 private:
  std::uint64_t bytes_;
  Instant logged_at_ = monotonic_now();
};

// --- from the coordinator

/// The connection on which the data set is received, after its head.
struct DataConnection {
  elastic::FirstSession session;
  DataHead head;
  [[nodiscard]] int fd() const { return session.session.fd.get(); }
};

/// What a worker without a data set needs to ask its coordinator for one.
struct Asker {
  const JobConfig& config;
  const Bytes& token;
  const CalledOff& is_called_off;
};

bool has_broken(const Error& error) {
  return error.code == Errc::kPeerLost || error.code == Errc::kDeadline;
}

/// Asks the coordinator for the data set. Nothing if it is serving other workers now.
Result<std::optional<DataConnection>> ask_for_data(elastic::FirstSession session) {
  DataConnection connection{std::move(session), {}};
  TransferRequest request;
  request.kind = TransferRequest::Kind::kData;
  TRY_ASSIGN(const TransferAnswer answer, request_transfer(connection.fd(), request));
  if (answer.verdict == TransferAnswer::Verdict::kRefused) {
    return Error{Errc::kRefused, answer.text};
  }
  if (answer.verdict == TransferAnswer::Verdict::kNothing) {
    return std::optional<DataConnection>();
  }
  TRY_ASSIGN(connection.head, receive_data_head(connection.fd()));
  return std::optional(std::move(connection));
}

/// Repeats the request if the connection breaks or the coordinator is busy, until no coordinator
/// answers or the worker should leave.
Result<DataConnection> keep_asking(const Asker& asker) {
  const Duration patience = first_answer_timeout(asker.config);
  elastic::Hello hello;
  hello.role = elastic::Role::kTransfer;
  while (true) {
    Result<elastic::FirstSession> session =
        elastic::open_first_session(coordinator_endpoints(asker.config), asker.token, hello,
                                    monotonic_now() + patience, asker.is_called_off);
    if (asker.is_called_off()) {
      return called_off();
    }
    if (!session.ok()) {
      return has_broken(session.error())
                 ? Error{Errc::kPeerLost,
                         fmt::format("no coordinator has answered for {} s ({})",
                                     patience / seconds(1), session.error().detail)}
                 : std::move(session).error();
    }
    Result<std::optional<DataConnection>> asked = ask_for_data(std::move(session).value());
    if (asked.ok() && asked.value()) {
      return *std::move(asked).value();
    }
    if (!asked.ok() && !has_broken(asked.error())) {
      return std::move(asked).error();
    }
    std::this_thread::sleep_for(kRetryAfter);
  }
}

Result<void> receive_all(const Asker& asker, DataConnection connection, const std::string& folder) {
  IncomingData incoming(folder);
  Progress progress(connection.head.bytes);
  int fruitless = 0;
  std::uint64_t before = 0;
  const auto report_bytes = [&](std::uint64_t received) {
    fruitless = received > before ? 0 : fruitless;
    progress(before = received);
    if (asker.is_called_off()) {
      ::shutdown(connection.fd(), SHUT_RDWR);
    }
  };
  while (true) {
    Result<void> received = incoming.receive(connection.fd(), connection.head, report_bytes);
    if (asker.is_called_off()) {
      return called_off();
    }
    if (received.ok() || !has_broken(received.error())) {
      return received;
    }
    if (++fruitless == kFruitlessMax) {
      return Error{Errc::kPeerLost,
                   fmt::format("the connection broke {} times in a row before a byte arrived; the "
                               "log of the coordinator may show the reason ({})",
                               kFruitlessMax, received.error().detail)};
    }
    log::info("the transfer of the data set continues after an interruption: " +
              received.error().detail);
    std::this_thread::sleep_for(kRetryAfter);
    TRY_ASSIGN(connection, keep_asking(asker));
  }
}

Result<std::string> fetch_from_coordinator(const JobConfig& config,
                                           const CalledOff& is_called_off) {
  TRY_ASSIGN(const Bytes token, read_job_token(config));
  const Asker asker{config, token, is_called_off};
  TRY_ASSIGN(DataConnection connection, keep_asking(asker));
  const DataHead head = connection.head;
  const Place place(
      fs::path(config.cache_dir) / (kFolderPrefix + to_string(digest_of(encode(head)))),
      is_called_off);
  Result<std::string> folder = place.filled([&](const std::string& empty) {
    log::info(fmt::format("fetching the data set from the coordinator: {} files, {} MiB",
                          head.files, head.bytes >> 20));
    Result<void> room = check_room(empty, head.bytes);
    return room.ok() ? receive_all(asker, std::move(connection), empty) : room;
  });
  return folder.ok() && !head.file.empty() ? folder.value() + "/" + head.file : std::move(folder);
}

// --- from elsewhere

/// Copies in pieces, between which `is_called_off` is called: one file may be the whole data set.
Result<void> copy_one_file(const std::string& from, const std::string& to,
                           const CalledOff& is_called_off) {
  TRY_ASSIGN(const ReadableFile source, open_to_read(from));
  const UniqueFd target(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!target.valid()) {
    return file_error("cannot create", to);
  }
  Bytes piece(std::min(source.size, kCopyBytes));
  for (std::size_t left = source.size; left > 0;) {
    if (is_called_off()) {
      return called_off();
    }
    const ssize_t got = ::read(source.fd.get(), piece.data(), std::min(left, piece.size()));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return got < 0 ? file_error("cannot read", from)
                     : Error{Errc::kIo, from + " became shorter while it was copied"};
    }
    const ByteSpan bytes = ByteSpan(piece).first(static_cast<std::size_t>(got));
    if (write_all(target.get(), bytes) < bytes.size()) {
      return file_error("cannot write", to);
    }
    left -= bytes.size();
  }
  return {};
}

/// Copies the files of a data set.
Result<void> copy_data(const std::string& from, const std::string& folder,
                       const CalledOff& is_called_off) {
  TRY_ASSIGN(const datasets::DatasetFiles files, datasets::files_of_dataset(from));
  for (const std::string& name : files.names) {
    if (is_called_off()) {
      return called_off();
    }
    const fs::path target = fs::path(folder) / name;
    TRY(make_directories(target.parent_path().string()));
    TRY(copy_one_file(files.root + "/" + name, target.string(), is_called_off));
  }
  return {};
}

/// The data set in a folder that an archive or a command has filled: the only entry, if there is
/// just one, else the folder itself.
std::string only_entry_of(const std::string& folder) {
  const std::vector<std::string> inside = names_in(folder);
  return inside.size() == 1 ? (fs::path(folder) / inside.front()).string() : folder;
}

/// The shell command that fetches and unpacks a tar.
std::string command_for_url(const std::string& url) {
  return fmt::format(
      "curl -fsSL --retry 5 -o {{}}/archive {} && tar -xf {{}}/archive -C {{}} && rm {{}}/archive",
      shell_quoted(url));
}

Result<void> run_command(std::string command, const std::string& folder,
                         const CalledOff& is_called_off) {
  const std::string quoted = shell_quoted(folder);
  for (std::size_t at = 0; (at = command.find("{}", at)) != std::string::npos;
       at += quoted.size()) {
    command.replace(at, 2, quoted);
  }
  ProgramCall call;
  call.argv = {"sh", "-c", "exec 1>&2\n" + command};  // commands may print each file's name
  call.timeout = kCommandMax;
  call.is_called_off = is_called_off;
  TRY_ASSIGN(const ProgramResult ran, run_program(call));
  if (ran.end == ProgramResult::End::kCalledOff) {
    return called_off();
  }
  return ran.succeeded() ? Result<void>()
                         : Error{Errc::kIo, "its command failed: " + ran.summary()};
}

/// Files that are not a data set must not stay in the cache, where later jobs would use them.
Result<void> check_what_came(const std::string& path) {
  const Result<void> checked = datasets::check_dataset(path);
  return checked.ok() ? checked
                      : Error{checked.error().code,
                              "the fetched files are not a data set: " + checked.error().detail};
}

Result<std::string> fetch_from_elsewhere(const JobConfig& config, const CalledOff& is_called_off) {
  const std::string& said = config.data_from;
  const bool is_url = said.starts_with("http://") || said.starts_with("https://");
  const bool is_command = !is_url && said.find("{}") != std::string::npos;
  // The cache's key needs an absolute path: a relative one depends on where a job is started.
  const std::string from = is_url || is_command ? said : absolute_path(said);
  const Place place(fs::path(config.cache_dir) /
                        (kFolderPrefix + to_string(digest_of(std::as_bytes(std::span(from))))),
                    is_called_off);
  const Result<std::string> folder = place.filled([&](const std::string& empty) {
    log::info("fetching the data set: " + from);
    Result<void> done = is_url       ? run_command(command_for_url(from), empty, is_called_off)
                        : is_command ? run_command(from, empty, is_called_off)
                                     : copy_data(from, empty, is_called_off);
    return done.ok() ? check_what_came(only_entry_of(empty)) : done;
  });
  return folder.ok() ? only_entry_of(folder.value()) : folder;
}

}  // namespace

Result<void> fetch_data(JobConfig& config, const std::function<bool()>& is_called_off) {
  std::error_code absent;
  if (config.data_from.empty() || datasets::is_procedural(config.data) ||
      fs::exists(config.data, absent)) {
    return {};
  }
  Result<std::string> fetched = config.data_from == "coordinator"
                                    ? fetch_from_coordinator(config, is_called_off)
                                    : fetch_from_elsewhere(config, is_called_off);
  if (!fetched.ok()) {
    return Error{
        fetched.error().code,
        fmt::format("{} does not exist on this host and cannot be fetched (--data-from {}): {}",
                    config.data, config.data_from, fetched.error().detail)};
  }
  config.data = std::move(fetched).value();
  log::info("the data set is in " + config.data);
  return {};
}

}  // namespace mayfly::engine
