#include "engine/transfers/data_transfer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <utility>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/net/sockets.hpp"
#include "base/system_error.hpp"
#include "base/thread_priority.hpp"
#include "base/try_assign.hpp"
#include "engine/run/record_wire.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kVisitsMax = 8;
constexpr std::size_t kPathBytesMax = 4096;
constexpr std::size_t kDataChunkBytes = 256U << 10;

Error changed_error() {
  return {Errc::kCorrupt, "the coordinator's data set has changed since the transfer began"};
}

/// Sends the name and the size of the file that follows.
Result<void> send_file_head(int fd, const std::string& name, std::uint64_t bytes) {
  WireWriter out;
  out.put_string(name);
  out.put(bytes);
  return send_frame(fd, out.take());
}

Result<void> send_digest(int fd, const Digest& digest) {
  WireWriter out;
  out.put(digest.high);
  out.put(digest.low);
  return send_frame(fd, out.take());
}

/// Sends a file from byte `first` on. The part before it is read, too, for the hash of the whole
/// file; that may take minutes, in which empty frames show the worker that the coordinator is
/// alive.
Result<void> send_file(int fd, const std::string& root, const std::string& name,
                       std::uint64_t first) {
  const std::string path = root + "/" + name;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const off_t end = file.valid() ? ::lseek(file.get(), 0, SEEK_END) : -1;
  if (end < 0 || ::lseek(file.get(), 0, SEEK_SET) < 0) {
    return system_error("cannot read " + path, errno);
  }
  const auto size = static_cast<std::uint64_t>(end);
  Digester digester;
  Bytes chunk(kDataChunkBytes);
  const auto read_on = [&](std::uint64_t bytes_max) -> Result<ByteSpan> {
    const ssize_t got = ::read(file.get(), chunk.data(), std::min(chunk.size(), bytes_max));
    if (got <= 0) {
      return got < 0 ? system_error("cannot read " + path, errno) : changed_error();
    }
    const ByteSpan bytes = ByteSpan(chunk).first(static_cast<std::size_t>(got));
    digester.add(bytes);
    return bytes;
  };
  std::uint64_t at = 0;
  while (at < std::min(first, size)) {
    TRY_ASSIGN(const ByteSpan bytes, read_on(std::min(first, size) - at));
    at += bytes.size();
    TRY(send_frame(fd, {}));
  }
  TRY(send_file_head(fd, name, size));
  while (at < size) {
    TRY_ASSIGN(const ByteSpan bytes, read_on(size - at));
    at += bytes.size();
    TRY(send_exactly(fd, bytes, transfer_deadline()));
  }
  return send_digest(fd, digester.finish());
}

}  // namespace

Bytes encode(const DataHead& head) {
  return bytes_of(head, kPathBytesMax);
}

Result<DataHead> decode_data_head(ByteSpan bytes) {
  const auto head = message_in<DataHead>(bytes, kPathBytesMax);
  const bool is_sound = head && (head->file.empty() || (is_inside(head->file) && head->files == 1));
  return is_sound ? Result<DataHead>(*head) : Error{Errc::kCorrupt, "not the head of a data set"};
}

bool is_inside(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && name.find('\0') == std::string::npos && path.is_relative() &&
         std::none_of(path.begin(), path.end(), [](const fs::path& part) {
           return part == ".." || part == "." || part.empty();
         });
}

Result<DataHead> receive_data_head(int fd) {
  const Result<Bytes> frame = receive_frame(fd);
  return frame.ok() ? decode_data_head(frame.value()) : frame.error();
}

// --- the coordinator's side

DataSender::DataSender(std::string data, const Digest& digest)
    : data_(std::move(data)), digest_(digest) {}

DataSender::~DataSender() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    for (const Visit& visit : visits_) {
      ::shutdown(visit.socket.get(), SHUT_RDWR);
    }
  }
  for (Visit& visit : visits_) {
    visit.thread.join();
  }
}

void DataSender::take(UniqueFd socket, std::string host) {
  const std::lock_guard lock(mutex_);
  visits_.remove_if([](Visit& visit) {
    if (visit.is_over) {
      visit.thread.join();
    }
    return visit.is_over.load();
  });
  if (is_closing_) {
    return;
  }
  if (visits_.size() == kVisitsMax) {
    (void)send_frame(socket.get(), encode(TransferAnswer{}));
    return;
  }
  Visit& visit = visits_.emplace_back();
  visit.socket = std::move(socket);
  visit.host = std::move(host);
  visit.thread = std::thread([this, &visit] { serve(visit); });
}

void DataSender::serve(Visit& visit) {
  pthread_setname_np(pthread_self(), "data");
  run_with_low_priority();
  if (const Result<void> sent = send_to(visit.socket.get()); !sent.ok()) {
    log::info(fmt::format("data set for {}: {}", visit.host, sent.error().detail));
  }
  ::shutdown(visit.socket.get(), SHUT_RDWR);
  visit.is_over = true;
}

void DataSender::look_at_files() {
  files_ = datasets::files_of_dataset(data_);
  if (!files_->ok()) {
    return;
  }
  const datasets::DatasetFiles& files = files_->value();
  head_ = {digest_, files.is_file ? files.names.front() : "", files.names.size(), 0};
  Digester listing;
  Digester times;
  for (const std::string& name : files.names) {
    struct stat info {};  // stays zero if the file does not exist any more; then sending it fails
    (void)::stat((files.root + "/" + name).c_str(), &info);
    head_.bytes += static_cast<std::uint64_t>(info.st_size);
    listing.add(std::as_bytes(std::span(name)));
    listing.add_value(static_cast<std::int64_t>(info.st_size));
    times.add_value(static_cast<std::int64_t>(info.st_mtim.tv_sec));
    times.add_value(static_cast<std::int64_t>(info.st_mtim.tv_nsec));
  }
  head_.listing = listing.finish();
  head_.times = times.finish();
}

Result<void> DataSender::send_to(int fd) {
  TransferAnswer answer;
  std::call_once(looked_, [this] { look_at_files(); });
  if (!files_->ok()) {
    answer.verdict = TransferAnswer::Verdict::kRefused;
    answer.text = "it has no data set to send: " + files_->error().detail;
    return send_frame(fd, encode(answer));
  }
  const datasets::DatasetFiles& files = files_->value();
  answer.verdict = TransferAnswer::Verdict::kTransfer;
  TRY(send_frame(fd, encode(answer)));
  TRY(send_frame(fd, encode(head_)));
  const Result<Bytes> frame = receive_frame(fd);
  if (!frame.ok()) {
    return frame.error().code == Errc::kPeerLost ? Result<void>() : frame.error();
  }
  WireReader in(frame.value());
  const auto complete = in.get<std::uint64_t>();
  std::uint64_t first = in.get<std::uint64_t>();
  for (std::uint64_t i = complete; i < files.names.size(); ++i) {
    TRY(send_file(fd, files.root, files.names[i], std::exchange(first, 0)));
  }
  return send_file_head(fd, "", 0);
}

// --- the worker's side

Result<void> IncomingData::receive(int fd, const DataHead& head,
                                   const std::function<void(std::uint64_t)>& on_progress) {
  DataHead expected = head;
  expected.times = head_ ? head_->times : head.times;  // changes show in the hash of each file
  if (head_ && *head_ != expected) {
    return changed_error();
  }
  head_ = std::move(expected);
  WireWriter out;
  out.put(position_.files);
  out.put(position_.bytes);
  TRY(send_frame(fd, out.take()));
  while (true) {
    TRY_ASSIGN(const bool more, receive_file(fd, on_progress));
    if (!more) {
      return position_.files == head.files ? Result<void>() : changed_error();
    }
  }
}

/// Receives the next file; false if the coordinator has sent the last one.
Result<bool> IncomingData::receive_file(int fd,
                                        const std::function<void(std::uint64_t)>& on_progress) {
  TRY_ASSIGN(Bytes frame, receive_frame(fd));
  while (frame.empty()) {  // the coordinator reads the part that this worker already has
    on_progress(received_);
    TRY_ASSIGN(frame, receive_frame(fd));
  }
  WireReader in(frame);
  const std::string name = in.get_string(kPathBytesMax);
  const auto size = in.get<std::uint64_t>();
  if (!in.complete() || (!name.empty() && !is_inside(name)) || size < position_.bytes) {
    return Error{Errc::kCorrupt, "not a file of a data set"};
  }
  if (name.empty()) {
    return false;
  }
  const std::string path = folder_ + "/" + name;
  TRY(make_directories(fs::path(path).parent_path().string()));
  const int mode = position_.bytes == 0 ? O_TRUNC : O_APPEND;
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0644));
  if (!file.valid()) {
    return system_error("cannot write " + path, errno);
  }
  Bytes chunk(kDataChunkBytes);
  while (position_.bytes < size) {
    const std::uint64_t count = std::min<std::uint64_t>(size - position_.bytes, chunk.size());
    const std::span<std::byte> target = std::span(chunk).first(count);
    TRY(receive_exactly(fd, target, transfer_deadline()));
    if (write_all(file.get(), target) < target.size()) {
      return system_error("cannot write " + path, errno);
    }
    digester_->add(target);
    position_.bytes += count;
    received_ += count;
    on_progress(received_);
  }
  TRY_ASSIGN(const Bytes said, receive_frame(fd));
  WireReader digest(said);
  const Digest expected{digest.get<std::uint64_t>(), digest.get<std::uint64_t>()};
  const bool is_right = digester_->finish() == expected;
  digester_ = std::make_unique<Digester>();
  if (is_right) {
    position_ = {position_.files + 1, 0};
    return true;
  }
  received_ -= size;
  position_.bytes = 0;
  const bool is_first = std::exchange(damaged_, position_.files) != position_.files;
  return Error{is_first ? Errc::kPeerLost : Errc::kCorrupt, name + " arrived damaged"};
}

}  // namespace mayfly::engine
