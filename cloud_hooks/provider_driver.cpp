#include "cloud_hooks/provider_driver.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/thread_priority.hpp"
#include "base/time.hpp"
#include "cloud_hooks/provider_lanes.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr Duration kCostEvery = seconds(60);
constexpr Duration kIdleWait = seconds(3600);
// A request is recorded before it is sent, unless the disk takes longer than this.
constexpr Duration kRecordFirst = milliseconds(10);
constexpr Duration kRecordsMax = seconds(10);
constexpr Duration kFinishPoll = milliseconds(50);

/// The outcome of a request that was not sent because the job had ended. If it is a repetition, the
/// provider may have received an earlier attempt.
RequestOutcome withdrawn(const policy_effect::Request& request) {
  return ProviderError{request.is_repeat ? ProviderErrorKind::kRate : ProviderErrorKind::kCapacity,
                       "not requested, as the job has ended"};
}

struct Received {
  Instant when;
  PolicyEvent event;
};

ReplacementOptions with_requests_at_once(ReplacementOptions options, std::size_t threads) {
  options.requests_at_once = static_cast<std::uint32_t>(threads);
  return options;
}

}  // namespace

class ProviderDriver::Impl {
 public:
  Impl(ReplacementOptions options, const DriverProviders& providers, DriverListener& listener)
      : listener_(listener),
        policy_(with_requests_at_once(std::move(options), providers.requests.size())),
        bills_([this](const auto& bills) { listener_.remember(bills.back()); }),
        facts_([this](const auto& facts) { publish_facts(facts); }),
        requests_(providers.requests, "requests"),
        releases_(providers.releases, "releases"),
        lists_({&providers.lists}, "lists"),
        thread_([this] {
          become_low_latency_thread("cloud driver");
          run();
        }) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void workers(std::vector<WorkerSeen> seen, Instant learned) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) {
        return;
      }
      seen_at_ = seen_ ? seen_at_ : learned;  // losses of an unread snapshot keep its earlier time
      seen_ = std::move(seen);
    }
    changed_.notify_all();
  }

  void enqueue(PolicyEvent event) {
    {
      const std::lock_guard lock(mutex_);
      inbox_.push_back({monotonic_now(), std::move(event)});
    }
    changed_.notify_all();
  }

  bool finish(Duration timeout) {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      seen_.reset();
      inbox_.push_back({monotonic_now(), policy_event::Ended{}});
    }
    changed_.notify_all();
    bool settled = false;
    {
      std::unique_lock lock(mutex_);
      Instant last_answer = monotonic_now();
      while (!settled_ && monotonic_now() - last_answer < timeout) {
        settled_changed_.wait_for(lock, kFinishPoll);
        if (!unanswered_.empty() || requests_open_ > 0) {  // these calls have their own time-outs
          last_answer = monotonic_now();
        }
      }
      settled = settled_;
    }
    facts_.flush(kRecordsMax);
    bills_.flush(kRecordsMax);
    return settled;
  }

  bool has_ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  PolicyStatus status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  std::optional<Composition> composition() {
    std::optional<Composition> last;
    {
      const std::lock_guard lock(mutex_);
      last = composition_;
      composition_wanted_ = true;
    }
    changed_.notify_all();
    return last;
  }

 private:
  void run();
  void step(Instant when, const PolicyEvent& event);
  void compare(Instant now, const std::vector<WorkerSeen>& seen);
  void carry_out(const policy_effect::Request& effect);
  void carry_out(const policy_effect::Release& effect);
  void carry_out(const policy_effect::List& effect);
  void carry_out(const policy_effect::Drain& effect) { listener_.drain(effect.member); }
  void carry_out(const policy_effect::StopJob& effect) { listener_.stop_job(effect.reason); }
  void carry_out(const policy_effect::Note& effect);
  void record_cost(Instant now);
  void publish(Instant now);
  void publish_facts(const std::vector<CloudFact>& facts);

  DriverListener& listener_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable settled_changed_;
  // Guarded by mutex_:
  std::deque<Received> inbox_;                   // answers of the lanes, and orders
  std::optional<std::vector<WorkerSeen>> seen_;  // the last snapshot, until it is processed
  Instant seen_at_{};
  bool stopping_ = false, ended_ = false, settled_ = false;
  std::set<std::string> releases_sent_;  // servers whose release was sent
  std::set<std::string> unanswered_;     // those of them without an answer
  int requests_open_ = 0;                // decided, and not answered yet
  PolicyStatus status_;
  std::optional<Composition> composition_;  // of the time of its last request
  bool composition_wanted_ = false;

  // Used by the deciding thread only:
  ReplacementPolicy policy_;
  std::map<MemberId, WorkerSeen> known_;
  Instant last_{};
  Instant cost_due_{};
  double recorded_spent_ = 0;

  // Each lane gives work to lanes before it, which are therefore destroyed later.
  BatchLane<PolicyStatus> bills_;
  BatchLane<CloudFact> facts_;
  ProviderLanes requests_, releases_, lists_;
  std::thread thread_;
};

void ProviderDriver::Impl::run() {
  step(monotonic_now(), policy_event::Begin{});
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Instant now = monotonic_now();
    const Instant wake = std::min(policy_.next_wake().value_or(now + kIdleWait), cost_due_);
    const auto has_news = [this] {
      return stopping_ || !inbox_.empty() || seen_.has_value() || composition_wanted_;
    };
    if (!has_news() && wake > now) {
      changed_.wait_for(lock, wake - now, has_news);
    }
    std::deque<Received> inbox;
    inbox.swap(inbox_);
    std::optional<std::vector<WorkerSeen>> seen;
    seen.swap(seen_);
    const Instant seen_at = seen_at_;
    lock.unlock();
    // The time of a loss is that of the snapshot, not that of its processing here.
    if (seen) {
      compare(seen_at, *seen);
    }
    for (const Received& received : inbox) {
      step(monotonic_now(), received.event);
      if (std::holds_alternative<policy_event::Scaled>(received.event)) {
        bills_.give(policy_.status(last_));  // a later process continues with the same target
      }
    }
    step(monotonic_now(), policy_event::Tick{});
    record_cost(monotonic_now());
    lock.lock();
    if (std::exchange(composition_wanted_, false)) {
      composition_ = policy_.composition(last_);
    }
  }
}

void ProviderDriver::Impl::step(Instant when, const PolicyEvent& event) {
  const Instant now = last_ = std::max(last_, when);  // times of events must not decrease
  for (const PolicyEffect& effect : policy_.handle(now, event)) {
    std::visit([this](const auto& e) { carry_out(e); }, effect);
  }
  publish(now);
}

void ProviderDriver::Impl::publish(Instant now) {
  const PolicyStatus status = policy_.status(now);
  const bool settled = policy_.settled();
  {
    const std::lock_guard lock(mutex_);
    status_ = status;
    settled_ = settled;
  }
  settled_changed_.notify_all();
}

void ProviderDriver::Impl::compare(Instant now, const std::vector<WorkerSeen>& seen) {
  std::map<MemberId, WorkerSeen> present;
  for (const WorkerSeen& worker : seen) {
    present.emplace(worker.member, worker);
  }
  const std::map<MemberId, WorkerSeen> before = known_;
  known_ = present;
  for (const auto& [member, worker] : before) {  // first, because its server may have a new worker
    if (!present.contains(member)) {
      step(now, policy_event::Gone{member});
    }
  }
  for (const auto& [member, worker] : present) {
    const auto old = before.find(member);
    if (old == before.end()) {
      step(now, policy_event::Joined{member, worker.server});
    }
    if (worker.is_irreplaceable && (old == before.end() || !old->second.is_irreplaceable)) {
      step(now, policy_event::Irreplaceable{member});
    }
    if (worker.leaves && (old == before.end() || !old->second.leaves)) {
      step(now, policy_event::Leaving{member});
    }
    if (worker.speed > 0 && (old == before.end() || old->second.speed != worker.speed)) {
      step(now, policy_event::Measured{member, worker.speed});
    }
  }
}

void ProviderDriver::Impl::carry_out(const policy_effect::Request& effect) {
  CloudFact fact;
  fact.kind = "server_requested";
  fact.all = policy_.status(last_);  // a later coordinator must know the cost of this request, too
  fact.request_id = effect.request.request_id;
  fact.detail = std::to_string(effect.request.count) + " x " + to_string(effect.request.offer) +
                (effect.is_repeat ? ", once more" : "");
  if (effect.loss) {
    fact.decided_ms = to_ms(monotonic_now() - *effect.loss);
  }
  {
    const std::lock_guard lock(mutex_);
    ++requests_open_;
  }
  requests_.give([this, effect, fact](Provider& provider) mutable {
    RequestOutcome outcome = withdrawn(effect);
    if (!has_ended()) {
      if (effect.loss) {
        fact.ms = to_ms(monotonic_now() - *effect.loss);
      }
      facts_.give(std::move(fact));
      facts_.flush(kRecordFirst);
      bills_.flush(kRecordFirst);
      outcome = provider.request(effect.request);
    }
    enqueue(policy_event::Answered{effect.request.request_id, std::move(outcome)});
    const std::lock_guard lock(mutex_);
    --requests_open_;
  });
}

void ProviderDriver::Impl::carry_out(const policy_effect::Release& effect) {
  {
    const std::lock_guard lock(mutex_);
    if (releases_sent_.insert(effect.server).second) {
      unanswered_.insert(effect.server);
    }
  }
  releases_.give([this, server = effect.server](Provider& provider) {
    const Instant begun = monotonic_now();
    std::optional<ProviderError> error = provider.release(server);
    if (!error) {
      CloudFact fact;
      fact.kind = "server_released";
      fact.server = server;
      fact.ms = to_ms(monotonic_now() - begun);
      facts_.give(std::move(fact));
    }
    enqueue(policy_event::ReleaseAnswered{server, std::move(error)});
    const std::lock_guard lock(mutex_);
    unanswered_.erase(server);
  });
}

void ProviderDriver::Impl::carry_out(const policy_effect::List&) {
  lists_.give([this](Provider& provider) {
    Answer<std::vector<ServerStatus>> listed = provider.list();
    const std::uint32_t wanted_back = provider.wanted_back();
    enqueue(policy_event::Listed{std::move(listed), wanted_back});
  });
}

void ProviderDriver::Impl::carry_out(const policy_effect::Note& effect) {
  CloudFact fact;
  fact.kind = effect.kind;
  fact.detail = effect.detail;
  fact.server = effect.server;
  fact.cost = effect.cost;
  fact.for_evaluator = effect.for_evaluator;
  fact.all = policy_.status(last_);
  facts_.give(std::move(fact));
}

void ProviderDriver::Impl::publish_facts(const std::vector<CloudFact>& facts) {
  for (const CloudFact& fact : facts) {
    listener_.on_fact(fact);
    if (fact.all) {
      bills_.give(*fact.all);
    }
  }
}

/// Called every minute in which there was a cost: a restarted coordinator continues from this sum.
void ProviderDriver::Impl::record_cost(Instant now) {
  if (now < cost_due_) {
    return;
  }
  cost_due_ = now + kCostEvery;
  const PolicyStatus status = policy_.status(now);
  if (status.spent == recorded_spent_ && status.per_hour == 0) {
    return;
  }
  recorded_spent_ = status.spent;
  CloudFact fact;
  fact.kind = "cost";
  fact.all = status;
  facts_.give(std::move(fact));
}

ProviderDriver::ProviderDriver(ReplacementOptions options, const DriverProviders& providers,
                               DriverListener& listener)
    : impl_(std::make_unique<Impl>(std::move(options), providers, listener)) {}
ProviderDriver::~ProviderDriver() = default;

void ProviderDriver::workers(std::vector<WorkerSeen> seen, Instant learned) {
  impl_->workers(std::move(seen), learned);
}
void ProviderDriver::scale(std::uint32_t target) {
  impl_->enqueue(policy_event::Scaled{target});
}
void ProviderDriver::give_up(std::uint32_t servers) {
  impl_->enqueue(policy_event::WantedBack{servers});
}
PolicyStatus ProviderDriver::status() const {
  return impl_->status();
}
std::optional<Composition> ProviderDriver::composition() {
  return impl_->composition();
}
void ProviderDriver::close() {
  impl_->enqueue(policy_event::Closing{});
}
bool ProviderDriver::finish(Duration timeout) {
  return impl_->finish(timeout);
}

}  // namespace mayfly::cloud_hooks
