#include "tests/sim/scale.hpp"

#include <algorithm>
#include <set>

#include "base/check.hpp"
#include "base/random.hpp"
#include "elastic/core/coordinator.hpp"

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr std::size_t kFrameHeaderBytes = 4;
constexpr std::uint32_t kMicrobatchesEach = 4;

class Driver {
 public:
  Driver(const ScaleOptions& options, double (*now_ms)())
      : random_(CounterRandom(options.seed).split("scale")),
        now_ms_(now_ms),
        microbatches_(std::min(options.members * kMicrobatchesEach, kMicrobatchesMax)),
        coordinator_(options_of(options, microbatches_)) {}

  void begin(const std::string& change) {
    row_ = {};
    row_.change = change;
  }
  ScaleRow end(std::uint32_t changes) {
    row_.members = static_cast<std::uint32_t>(members_.size());
    row_.changes = changes;
    for (double* number : {&row_.messages_in, &row_.messages_out, &row_.bytes_in, &row_.bytes_out,
                           &row_.machine_ms, &row_.encode_ms}) {
      *number /= changes;
    }
    return row_;
  }

  /// Workers connect and load; they become members with the next view.
  void connect(std::uint32_t workers) {
    for (std::uint32_t i = 0; i < workers; ++i) {
      Hello hello;
      hello.address = "10.123.45.67:40000;" + std::to_string(random_.bits());
      events_.emplace_back(coordinator_event::WorkerConnected{++connections_, std::move(hello)});
    }
    happen();
    for (const MemberId member : std::exchange(accepted_, {})) {
      say(member, Ready{Step{committed_}});
    }
    happen();
  }
  void lose(std::uint32_t count) {
    reached_ = static_cast<std::uint32_t>(random_.below(kMicrobatchesEach));
    for (std::uint32_t i = 0; i < count; ++i) {
      const MemberId victim = any_member();
      members_.erase(victim);
      events_.emplace_back(coordinator_event::ConnectionLost{victim, "reset"});
    }
    happen();
  }
  void ask_one_to_leave() {
    say(any_member(), LeaveRequest{"notice"});
    happen();
  }
  /// Whether members are at different points of a step when one is lost.
  void set_apart(bool apart) { is_apart_ = apart; }
  /// Members answer the coordinator's messages until all of them compute in one view.
  void settle() {
    while (!stopping_.empty() || !starting_.empty()) {
      for (const MemberId member : std::exchange(stopping_, {})) {
        if (members_.contains(member)) {
          say(member, Stopped{view_, Step{committed_}, held_by(member), false, false, {}, "", {}});
        }
      }
      happen();
      ++committed_;
      for (const MemberId member : std::exchange(starting_, {})) {
        say(member, Formed{view_});
        say(member, Synced{view_});
        say(member, Progress{view_, Step{committed_}, 5.0F});
      }
      happen();
    }
  }
  [[nodiscard]] std::size_t members() const { return members_.size(); }

 private:
  static CoordinatorOptions options_of(const ScaleOptions& options, std::uint32_t microbatches) {
    CoordinatorOptions core;
    core.microbatches = microbatches;
    core.initial_workers = options.members;
    core.seed = options.seed;
    return core;
  }

  MemberId any_member() {
    ENSURE(!members_.empty(), "somebody is left");
    const auto place = members_.lower_bound(MemberId{random_.below(value(newest_)) + 1});
    return place == members_.end() ? *members_.begin() : *place;
  }

  /// The microbatches that a member has computed; on equal servers members are about equally far.
  MicrobatchSet held_by(MemberId member) {
    const ViewMember* self = member_of(*coordinator_.view(), member);
    if (at_boundary_ || self == nullptr || self->count == 0) {
      return {};
    }
    const std::uint64_t held =
        is_apart_ ? random_.below(std::uint64_t{self->count} + 1) : reached_ + random_.below(2);
    return MicrobatchSet::range(self->first,
                                std::min(static_cast<std::uint32_t>(held), self->count));
  }

  void say(MemberId member, Message message) {
    const Bytes bytes = encode(message);
    ++row_.messages_in;
    row_.bytes_in += static_cast<double>(bytes.size() + kFrameHeaderBytes);
    events_.emplace_back(coordinator_event::Received{member, std::move(message)});
  }
  /// Handles all waiting events. Their time is measured together, because reading a clock takes
  /// about as long as handling one event.
  void happen() {
    std::vector<CoordinatorEffect> effects;
    const double before = now_ms_();
    for (const CoordinatorEvent& event : events_) {
      for (CoordinatorEffect& effect : coordinator_.handle(now_, event)) {
        effects.push_back(std::move(effect));
      }
      now_ = now_ + Duration(1000);
    }
    row_.machine_ms += now_ms_() - before;
    events_.clear();
    const std::vector<double> sizes = encoded_sizes(effects);
    for (std::size_t i = 0; i < effects.size(); ++i) {
      carry_out(effects[i], sizes[i]);
    }
  }
  std::vector<double> encoded_sizes(const std::vector<CoordinatorEffect>& effects) {
    std::vector<double> sizes;
    const double before = now_ms_();
    for (const CoordinatorEffect& effect : effects) {
      const auto* send = std::get_if<coordinator_effect::Send>(&effect);
      const auto* to_all = std::get_if<coordinator_effect::SendToAll>(&effect);
      const Message* message = send != nullptr     ? &send->message
                               : to_all != nullptr ? &to_all->message
                                                   : nullptr;
      sizes.push_back(message == nullptr
                          ? 0
                          : static_cast<double>(encode(*message).size() + kFrameHeaderBytes));
    }
    row_.encode_ms += now_ms_() - before;
    return sizes;
  }
  void carry_out(const CoordinatorEffect& effect, double size) {
    using namespace coordinator_effect;
    if (const auto* accept = std::get_if<Accept>(&effect)) {
      newest_ = accept->member;
      accepted_.push_back(newest_);
      members_.insert(newest_);
    } else if (const auto* send = std::get_if<Send>(&effect)) {
      sent(send->message, {send->member}, size);
    } else if (const auto* to_all = std::get_if<SendToAll>(&effect)) {
      sent(to_all->message, to_all->members, size);
    }
  }
  void sent(const Message& message, const std::vector<MemberId>& members, double size) {
    row_.messages_out += static_cast<double>(members.size());
    row_.bytes_out += size * static_cast<double>(members.size());
    const auto* view = std::get_if<NewView>(&message);
    const auto* delta = std::get_if<NewViewDelta>(&message);
    if (view != nullptr || delta != nullptr) {
      view_ = view != nullptr ? view->view.id : delta->delta.id;
      starting_.insert(starting_.end(), members.begin(), members.end());
      row_.full_view_bytes = static_cast<double>(encode(NewView{*coordinator_.view()}).size());
      if (delta != nullptr || members.size() > 1) {
        row_.bytes_per_member_max = std::max(row_.bytes_per_member_max, size);
      }
    } else if (const auto* stop = std::get_if<Stop>(&message)) {
      at_boundary_ = stop->at_boundary;
      stopping_.insert(stopping_.end(), members.begin(), members.end());
    } else if (std::holds_alternative<Dismiss>(message)) {
      for (const MemberId member : members) {
        members_.erase(member);
      }
    }
  }

  RandomStream random_;
  double (*now_ms_)();
  std::uint32_t microbatches_;
  Coordinator coordinator_;
  Instant now_ = Instant{} + seconds(1);
  std::uint64_t connections_ = 0;
  std::uint64_t committed_ = 0;
  std::vector<CoordinatorEvent> events_;  // not handled yet
  MemberId newest_{};
  std::vector<MemberId> accepted_;  // workers that are still loading
  ViewId view_{};
  std::set<MemberId> members_;
  bool is_apart_ = false;
  std::uint32_t reached_ = 0;  // microbatches that each member had computed at the last loss
  bool at_boundary_ = false;   // members stop between two steps
  std::vector<MemberId> stopping_;
  std::vector<MemberId> starting_;
  ScaleRow row_;
};

}  // namespace

std::vector<ScaleRow> measure_scale(const ScaleOptions& options, double (*now_ms)()) {
  Driver driver(options, now_ms);
  std::vector<ScaleRow> rows;
  driver.begin("start");
  driver.connect(options.members);
  driver.settle();
  rows.push_back(driver.end(1));
  const auto each = [&](const std::string& change, auto&& cause) {
    driver.begin(change);
    for (std::uint32_t i = 0; i < options.changes; ++i) {
      cause();
      driver.settle();
    }
    rows.push_back(driver.end(options.changes));
  };
  const auto missing = [&] {
    return options.members - static_cast<std::uint32_t>(driver.members());
  };
  const auto lose_and_replace_one = [&] {
    driver.lose(1);
    driver.settle();
    driver.connect(1);
  };
  each("loss and join", lose_and_replace_one);
  driver.set_apart(true);
  each("loss and join, apart", lose_and_replace_one);
  driver.set_apart(false);
  each("leave", [&] { driver.ask_one_to_leave(); });
  each("joins", [&] { driver.connect(std::max(1U, missing() / options.changes)); });
  each("loss of a tenth", [&] {
    driver.lose(std::max(1U, options.members / 10));
    driver.settle();
    driver.connect(missing());
  });
  return rows;
}

}  // namespace mayfly::sim
