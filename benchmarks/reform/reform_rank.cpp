#include "benchmarks/reform/reform_rank.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/aligned_buffer.hpp"
#include "benchmarks/ranks/control_hub.hpp"
#include "benchmarks/ranks/group_rank.hpp"
#include "benchmarks/ranks/line_socket.hpp"
#include "benchmarks/ranks/reduction_check.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::bench {
namespace {

using collectives::DataType;
using collectives::Group;

constexpr std::size_t kElements = kReformBytes / sizeof(std::int32_t);
constexpr Duration kFarAway = seconds(60);

/// An order to form a view: "view VIEW RANK KEY MEMBER ADDRESS [MEMBER ADDRESS]...".
struct ViewOrder {
  collectives::GroupSpec spec;
  Instant heard;
};

std::optional<ViewOrder> parse_view(const std::string& line) {
  const std::vector<std::string> words = words_of(line);
  if (words.size() < 6 || words.size() % 2 != 0 || words[0] != "view") {
    return std::nullopt;
  }
  const auto number = [&words](std::size_t i) {
    return std::strtoull(words[i].c_str(), nullptr, 10);
  };
  ViewOrder order;
  order.heard = monotonic_now();
  order.spec.view = ViewId{number(1)};
  order.spec.rank = Rank{static_cast<std::uint32_t>(number(2))};
  order.spec.key = number(3);
  for (std::size_t i = 4; i < words.size(); i += 2) {
    order.spec.peers.push_back({MemberId{number(i)}, words[i + 1]});
  }
  return order;
}

/// Passes orders from the thread that listens to the driver to the one that works, as in a worker.
class Orders {
 public:
  explicit Orders(collectives::Transport& transport) : transport_(transport) {}

  /// Control thread: ends the view in progress and asks for the next one.
  void put(ViewOrder order) {
    transport_.give_up_on(ViewId{value(order.spec.view) - 1});
    {
      const std::lock_guard lock(mutex_);
      over_ = ViewId{value(order.spec.view) - 1};
      if (group_ != nullptr && group_->view() <= over_) {
        group_->abort();
      }
      orders_.push_back(std::move(order));
    }
    arrived_.notify_one();
  }

  // The working thread:
  ViewOrder take() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !orders_.empty(); });
    ViewOrder order = std::move(orders_.front());
    orders_.pop_front();
    return order;
  }
  void attach(Group& group) {
    const std::lock_guard lock(mutex_);
    group_ = &group;
    if (group.view() <= over_) {
      group.abort();
    }
  }
  void detach() {
    const std::lock_guard lock(mutex_);
    group_ = nullptr;
  }

 private:
  collectives::Transport& transport_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  // Guarded by mutex_:
  std::deque<ViewOrder> orders_;
  Group* group_ = nullptr;
  ViewId over_{};
};

class Member {
 public:
  Member(std::unique_ptr<collectives::Transport> transport, std::unique_ptr<ControlStore> store,
         LineSocket socket)
      : transport_(std::move(transport)),
        store_(std::move(store)),
        socket_(std::move(socket)),
        orders_(*transport_),
        data_(kElements) {}

  /// Returns only if the driver has ended before this member began.
  int run(const std::string& name) {
    if (!socket_.send("hello " + name + " -1").ok() ||
        !socket_.send("address " + transport_->address()).ok()) {
      return engine::kExitFailed;
    }
    std::thread([this] { listen(); }).detach();  // that thread ends the process
    while (true) {
      live_through(orders_.take());
    }
  }

 private:
  void listen() {
    while (true) {
      const Result<std::string> line = socket_.receive();
      if (!line.ok() || line.value() == "quit") {
        std::_Exit(engine::kExitDone);  // there is nothing to clean up, and a group may hang
      }
      if (std::optional<ViewOrder> order = parse_view(line.value())) {
        orders_.put(*std::move(order));
      }
    }
  }

  void live_through(ViewOrder order) {
    const Instant stopped = monotonic_now();  // the last view's group has ended
    order.spec.store = store_.get();
    Result<std::unique_ptr<Group>> group = transport_->form(order.spec, monotonic_now() + kFarAway);
    if (!group.ok()) {
      return complain(order.spec.view, group.error());
    }
    const Instant formed = monotonic_now();
    orders_.attach(*group.value());
    const Result<void> right = first_sum(*group.value());
    if (right.ok()) {
      (void)socket_.send(fmt::format("sum {} {} {} {} {}", value(order.spec.view), order.heard.ns,
                                     stopped.ns, formed.ns, monotonic_now().ns));
      reduce_until_told(*group.value());
    } else {
      complain(order.spec.view, right.error());
    }
    orders_.detach();
  }

  Result<void> first_sum(Group& group) {
    const std::uint64_t salt = value(group.view());
    fill_contribution(data_.data(), kElements, DataType::kInt32, value(group.rank()), salt);
    TRY(reduce(group));
    return check_sum(data_.data(), kElements, DataType::kInt32, group.size(), salt);
  }

  void reduce_until_told(Group& group) {
    while (reduce(group).ok()) {
    }
  }

  Result<void> reduce(Group& group) {
    return group.all_reduce_blocking(data_.data(), kElements, DataType::kInt32,
                                     collectives::ReduceOp::kSum, monotonic_now() + kFarAway);
  }

  /// An aborted view is no failure: the next order will arrive.
  void complain(ViewId view, const Error& error) {
    if (error.code != Errc::kAborted) {
      (void)socket_.send(
          fmt::format("failed {} {}: {}", value(view), to_string(error.code), error.detail));
    }
  }

  std::unique_ptr<collectives::Transport> transport_;
  std::unique_ptr<ControlStore> store_;
  LineSocket socket_;
  Orders orders_;
  AlignedBuffer<std::int32_t> data_;
};

}  // namespace

int run_reform_rank(const std::string& backend, const RankOptions& options) {
  Result<std::unique_ptr<collectives::Transport>> transport = make_bench_transport(backend);
  if (!transport.ok()) {
    return refuse_rank(options, transport.error());
  }
  Result<std::unique_ptr<ControlStore>> store =
      ControlStore::connect(options.control, options.name);
  Result<LineSocket> socket = LineSocket::connect(options.control);
  if (!store.ok() || !socket.ok()) {
    return engine::kExitFailed;  // the driver has ended
  }
  Member member(std::move(transport).value(), std::move(store).value(), std::move(socket).value());
  return member.run(options.name);
}

}  // namespace mayfly::bench
