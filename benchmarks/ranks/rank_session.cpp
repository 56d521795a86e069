#include "benchmarks/ranks/rank_session.hpp"

#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/aligned_buffer.hpp"
#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "benchmarks/ranks/line_socket.hpp"
#include "benchmarks/ranks/reduction_check.hpp"
#include "benchmarks/ranks/shared_barrier.hpp"

namespace mayfly::bench {
namespace {

using collectives::DataType;

constexpr unsigned kOrderSecondsMax = 150;  // the driver gives up before that
constexpr Duration kBarrierTimeout = seconds(60);

struct Cell {
  std::size_t bytes = 0;
  DataType type = DataType::kFloat32;
  std::uint32_t iterations = 0;
  std::uint64_t salt = 0;
};

template <typename T>
bool read(const std::string& word, T& number) {
  const std::optional<T> found = number_in<T>(word);
  number = found.value_or(number);
  return found.has_value();
}

Error not_understood(const std::string& line) {
  return {Errc::kCorrupt, "not an order at this place: " + line};
}

class Session {
 public:
  Session(LineSocket socket, AllReducer& reducer) : socket_(std::move(socket)), reducer_(reducer) {}

  Result<void> run(const std::string& name) {
    TRY(meet(name));
    while (true) {
      ::alarm(0);
      const Result<std::string> order = socket_.receive();
      if (!order.ok() || order.value() == "quit") {
        return {};  // the driver has ended, and needs no report
      }
      ::alarm(kOrderSecondsMax);
      TRY(obey(order.value()));
    }
  }

  void fail(const Error& error) {
    (void)socket_.send(std::string("failed ") + to_string(error.code) + " " + error.detail);
  }

 private:
  Result<void> meet(const std::string& name) {
    ::alarm(kOrderSecondsMax);
    const std::optional<std::uint32_t> fixed = reducer_.fixed_rank();
    const std::string rank = fixed.has_value() ? std::to_string(*fixed) : "-1";
    Result<std::vector<std::string>> join = ask("hello " + name + " " + rank);
    if (!join.ok()) {
      return std::move(join).error();
    }
    const std::vector<std::string>& words = join.value();
    if (words.size() != 4 || words[0] != "join" || !read(words[1], rank_) ||
        !read(words[2], size_)) {
      return not_understood(words.empty() ? "" : words[0]);
    }
    TRY_ASSIGN(SharedBarrier barrier, SharedBarrier::open(words[3], size_));
    barrier_.emplace(std::move(barrier));
    return connect();
  }

  Result<void> connect() {
    const Result<std::vector<std::string>> peers = ask("address " + reducer_.address());
    if (!peers.ok()) {
      return peers.error();
    }
    std::vector<std::string> words = peers.value();
    std::uint64_t key = 0;
    if (words.size() != size_ + 2 || words[0] != "peers" || !read(words[1], key)) {
      return not_understood(words.empty() ? "" : words[0]);
    }
    words.erase(words.begin(), words.begin() + 2);
    TRY(reducer_.connect(rank_, key, words));
    return socket_.send("ready");
  }

  Result<std::vector<std::string>> ask(const std::string& line) {
    TRY(socket_.send(line));
    TRY_ASSIGN(std::string answer, socket_.receive());
    return words_of(answer);
  }

  Result<void> obey(const std::string& line) {
    const std::vector<std::string> words = words_of(line);
    Cell cell;
    if (words.size() != 5 || words[0] != "cell" || !read(words[1], cell.bytes) ||
        !read(words[3], cell.iterations) || !read(words[4], cell.salt)) {
      return not_understood(line);
    }
    TRY_ASSIGN(const DataType type, parse_bench_type(words[2]));
    cell.type = type;
    Result<std::string> times = measure(cell);
    return times.ok() ? socket_.send("times" + times.value()) : std::move(times).error();
  }

  /// Computes a checked sum, the timed ones, and a checked sum again.
  Result<std::string> measure(const Cell& cell) {
    if (buffer_.size() < cell.bytes) {
      buffer_ = {};  // frees the old buffer first
      buffer_ = AlignedBuffer<std::byte>(cell.bytes);
    }
    TRY(sum_and_check(cell, 2 * cell.salt));
    // Repeated sums of zeros stay zero; sums of other values would end in infinities.
    std::memset(buffer_.data(), 0, cell.bytes);
    std::string times;
    for (std::uint32_t i = 0; i < cell.iterations; ++i) {
      TRY_ASSIGN(const Duration took, time_one(cell));
      times += ' ';
      times += std::to_string(took.count());
    }
    TRY(sum_and_check(cell, 2 * cell.salt + 1));
    return times;
  }

  Result<Duration> time_one(const Cell& cell) {
    TRY(barrier_->wait(monotonic_now() + kBarrierTimeout));
    const Instant begin = monotonic_now();
    const std::uint32_t batch = batch_of(cell.bytes);
    for (std::uint32_t i = 0; i < batch; ++i) {
      TRY(reducer_.sum(buffer_.data(), count_of(cell), cell.type));
    }
    return (monotonic_now() - begin) / batch;
  }

  Result<void> sum_and_check(const Cell& cell, std::uint64_t salt) {
    fill_contribution(buffer_.data(), count_of(cell), cell.type, rank_, salt);
    TRY(reducer_.sum(buffer_.data(), count_of(cell), cell.type));
    return check_sum(buffer_.data(), count_of(cell), cell.type, size_, salt);
  }

  static std::size_t count_of(const Cell& cell) {
    return cell.bytes / collectives::size_of(cell.type);
  }

  LineSocket socket_;
  AllReducer& reducer_;
  std::optional<SharedBarrier> barrier_;
  AlignedBuffer<std::byte> buffer_;  // of the size of the largest vector so far
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace

Result<RankOptions> parse_rank_options(const std::vector<std::string>& words) {
  RankOptions options;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    if (words[i] == "--control") {
      options.control = words[i + 1];
    } else if (words[i] == "--name") {
      options.name = words[i + 1];
    }
  }
  if (options.control.empty() || options.name.empty()) {
    return Error{Errc::kInvalidInput,
                 "this is a rank of mayfly bench, which starts it: --control PATH --name NAME"};
  }
  return options;
}

int serve_rank(const RankOptions& options, AllReducer& reducer) {
  Result<LineSocket> socket = LineSocket::connect(options.control);
  if (!socket.ok()) {
    return 1;  // the driver has ended
  }
  Session session(std::move(socket).value(), reducer);
  const Result<void> served = session.run(options.name);
  ::alarm(kOrderSecondsMax);  // the library may also hang at its end
  if (!served.ok()) {
    session.fail(served.error());
  }
  return served.ok() ? 0 : 1;
}

int refuse_rank(const RankOptions& options, const Error& error) {
  Result<LineSocket> socket = LineSocket::connect(options.control);
  if (socket.ok()) {
    (void)socket.value().send("hello " + options.name + " -1");
    (void)socket.value().send(std::string("failed ") + to_string(error.code) + " " + error.detail);
  }
  return 1;
}

}  // namespace mayfly::bench
