#include "collectives/parameter_server/shard_replica.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/try_assign.hpp"

namespace mayfly::parameter_server {
namespace {

// A follower compares one of so many parts with each push, and all of them in so many updates.
constexpr std::uint64_t kComparedParts = 64;

}  // namespace

ShardReplica::ShardReplica(const ShardOptions& options, const SyncPlan& plan, ShardState& state,
                           ShardListener& listener)
    : options_(options),
      state_(state),
      listener_(listener),
      core_(plan,
            {options.number == 0, {options.shards == 1, options.stragglers}, options.divergence}),
      role_(options.role),
      gradients_(state.values().size()),
      log_(leads() && options.has_follower),
      speeds_(options.straggling) {}

/// The hash of a part of the parameters and their momentum; each version has another part.
std::uint64_t ShardReplica::hash_of_part() const {
  const std::size_t floats = values().size();
  const std::uint64_t parts = std::clamp<std::uint64_t>(floats, 1, kComparedParts);
  const std::uint64_t part = version().version % parts;
  const std::size_t first = floats * part / parts;
  const std::size_t count = floats * (part + 1) / parts - first;
  return payload_hash(std::as_bytes(values().subspan(first, count)),
                      std::as_bytes(momentum().subspan(first, count)));
}

Result<ShardReplica::Decision> ShardReplica::decide(const ShardEvent& event, const Header& message,
                                                    PushedSum gradient) {
  const bool is_compared =
      event.kind == ShardEventKind::kPush && (leads() ? log_.has_follower() : message.prefix != 0);
  const std::uint64_t part = is_compared ? hash_of_part() : 0;
  if (is_compared && !leads() && message.prefix != part) {
    return Error{Errc::kCorrupt, "their parameters are not the same"};
  }
  TRY_ASSIGN(ShardOutcome outcome, core_.take(event));
  Decision decision{std::move(outcome), {message, words_of(event), {}}};
  ReplicaEntry& entry = decision.entry;
  entry.header.slot = 0;  // the follower is sent the gradient itself
  entry.header.prefix = part;
  if (log_.has_follower()) {
    entry.header.entry = log_.add();
  }
  const std::optional<PushFate> fate = decision.outcome.fate;
  const bool is_new = fate == PushFate::kApplied || fate == PushFate::kStaged;
  const bool is_there = !gradient.span().empty();
  if (is_new && !is_there) {  // a leader sends the gradient if and only if it has kept it
    return Error{Errc::kCorrupt, "a slice without its gradient"};
  }
  if (is_new) {
    entry.gradient = std::as_bytes(gradients_.keep(std::move(gradient), entry.header, gate()));
  } else if (is_there && !leads()) {
    return Error{Errc::kCorrupt, "a slice is new to its leader and was there before"};
  } else {
    gradients_.recycle(std::move(gradient));
  }
  at_once_ += event.push.at_once && fate == PushFate::kApplied ? 1 : 0;
  if (event.kind == ShardEventKind::kWorkers && leads()) {
    speeds_.set_workers(event.workers);
    quiet_reported_ = true;
  } else if (event.kind == ShardEventKind::kHold && leads()) {
    quiet_reported_ = false;
  }
  return decision;
}

void ShardReplica::change(const ShardOutcome& outcome) {
  if (outcome.restore) {
    restore(*outcome.restore);
  }
  if (outcome.update) {
    apply(*outcome.update);
  }
}

void ShardReplica::restore(const Rewind& rewind) {
  state_.restore(rewind.to);
  const RewindFacts facts{rewind, core_.plan().steps_before(rewind.at), core_.divergence()};
  if (leads()) {
    reports_.add(gate(), facts);
  } else {
    listener_.on_rewound(facts);
  }
}

void ShardReplica::apply(const Update& update) {
  const PushedGradients::Sums sums = gradients_.apply(update);
  if (update.begins_phase && options_.divergence.falls_back && !core_.plan().rewound()) {
    state_.keep(update.committed_before);
  }
  state_.apply(sums.slices, update);
  if (leads()) {
    reports_.add(gate(), sums.facts);
  } else {
    listener_.on_followed(sums.facts);
  }
}

void ShardReplica::measure(Instant now, const ShardEvent& event, const Grants& grants) {
  if (!measures()) {
    return;
  }
  if (event.kind == ShardEventKind::kPush) {
    speeds_.arrived(now, event.push.worker);
  } else if (event.kind == ShardEventKind::kRest) {
    speeds_.probe_done(now, event.push.worker);
  }
  for (const Grant& grant : grants) {
    note_lease(now, grant);
  }
}

void ShardReplica::note_lease(Instant now, const Grant& grant) {
  if (!core_.leases()->shows_speeds()) {
    speeds_.forget_leases();
  } else if (grant.lease.kind == LeaseKind::kCompute) {
    speeds_.leased(now, grant.worker, grant.lease.serial, grant.lease.count);
  } else if (grant.lease.kind == LeaseKind::kProbe) {
    ++probes_;
    speeds_.probed(now, grant.worker, grant.lease.count);
  }
}

std::optional<ShardEvent> ShardReplica::straggler_order() {
  if (!measures()) {
    return std::nullopt;
  }
  const std::vector<StragglerChange> changes = speeds_.take_changes();
  if (options_.stragglers == StragglerPolicy::kNone || changes.empty()) {
    return std::nullopt;
  }
  for (const StragglerChange& change : changes) {
    listener_.on_straggler(change);
  }
  return ShardEvent{.kind = ShardEventKind::kStragglers, .stragglers = speeds_.stragglers()};
}

void ShardReplica::release() {
  while (const std::optional<Report> report = reports_.next(log_.safe())) {
    if (const auto* update = std::get_if<UpdateFacts>(&*report)) {
      listener_.on_update(*update);
    } else {
      listener_.on_rewound(std::get<RewindFacts>(*report));
    }
  }
  gradients_.release(log_.safe());
}

void ShardReplica::report_rest(ViewId view) {
  const bool is_safe = leads() && log_.last() <= log_.safe();
  if (!is_first() || !is_safe) {
    return;
  }
  if (core_.leases()->is_over() && !std::exchange(end_reported_, true)) {
    listener_.on_over();  // before on_quiet(): then no job is left to stop
  }
  if (!quiet_reported_ && core_.leases()->is_quiet()) {
    quiet_reported_ = true;
    listener_.on_quiet(view);
  }
}

void ShardReplica::describe(ShardFacts& facts) const {
  if (facts.version != core_.order().version()) {
    facts.staleness = core_.order().staleness();
  }
  facts.leads = leads();
  facts.version = core_.order().version();
  facts.committed = core_.order().applied().count();
  facts.repeats = core_.repeats();
  if (const LeaseTable* leases = core_.leases()) {
    facts.late = leases->late();
    facts.reissued = leases->reissued();
    facts.mixed = leases->mixed();
  }
  facts.at_once = at_once_;
  facts.undone = core_.undone();
  facts.probes = probes_;
}

}  // namespace mayfly::parameter_server
