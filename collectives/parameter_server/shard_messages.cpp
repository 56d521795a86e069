// The messages of workers to a shard, and its answers.

#include <algorithm>

#include "base/check.hpp"
#include "base/try_assign.hpp"
#include "collectives/parameter_server/shard_loop.hpp"

namespace mayfly::parameter_server {

Result<PayloadTarget> ShardLoop::expect(Session& session, const Header& header) {
  if (session.is_leader) {
    return expect_entry(session, header);
  }
  const bool is_push = header.type == MessageType::kPush;
  if (header.payload_bytes != (is_push ? payload_bytes_ : 0)) {
    return Error{Errc::kCorrupt, "a message of the wrong size"};
  }
  if (is_push && header.count == 0) {
    return Error{Errc::kCorrupt, "a gradient of nothing"};
  }
  if (!session.worker) {
    const bool greets = header.type == MessageType::kHello || header.type == MessageType::kFollow;
    return greets ? Result<PayloadTarget>(PayloadTarget{})
                  : Result<PayloadTarget>(Error{Errc::kRefused, "no hello"});
  }
  if (header.slot != 0) {
    const bool is_there = session.slots != nullptr && header.slot <= SharedSlots::kGradients;
    return is_there ? Result<PayloadTarget>(PayloadTarget{})
                    : Result<PayloadTarget>(Error{Errc::kCorrupt, "a slot that is not shared"});
  }
  if (is_push && session.space.own.size() == 0) {
    session.space = take_buffer();
  }
  return is_push ? PayloadTarget{std::as_writable_bytes(session.space.own.span()), {}}
                 : PayloadTarget{};
}

Result<void> ShardLoop::handle(Session& session, const Header& header) {
  if (session.is_leader) {
    return take_entry(session, header);
  }
  if (!session.worker) {
    session.hello = header;
    admit();
    return {};
  }
  return handle_worker(session, header);
}

Result<void> ShardLoop::handle_worker(Session& session, const Header& header) {
  if (MemberId{header.worker} != *session.worker) {
    return Error{Errc::kCorrupt, "a worker that speaks for another one"};
  }
  switch (header.type) {
    case MessageType::kPush:
      if ((header.flags & flags::kAsks) != 0) {
        session.question = header.question;
      }
      return header.slot != 0 ? take_from_slot(session, header)
                              : take(event_of(header), header, &session.space);
    case MessageType::kPull: session.question = header.question; [[fallthrough]];
    case MessageType::kRest: return take(event_of(header), header, nullptr);
    case MessageType::kStatePull: send_state(session, header.question); return {};
    case MessageType::kBye: listener_.on_over(); return {};
    default: return Error{Errc::kCorrupt, "a message that workers do not send"};
  }
}

/// The gradient stays where its worker has written it. The slot is the worker's again at the end,
/// unless the gradient is kept.
Result<void> ShardLoop::take_from_slot(Session& session, const Header& header) {
  PushedSum gradient{{}, TakenSlot(session.slots, header.slot)};
  const ByteSpan bytes = std::as_bytes(gradient.span());
  if (header.payload_check != 0 && header.payload_check != payload_hash(bytes, {})) {
    return Error{Errc::kCorrupt, "a payload was damaged on its way"};
  }
  own_facts_.bytes_shared += bytes.size();
  Header unshared = header;
  unshared.slot = 0;  // to the follower it is sent
  return take(event_of(header), unshared, &gradient);
}

/// Decides, tells the follower, and does what follows. A gradient is applied only when all of it is
/// here: a worker may die in the middle.
Result<void> ShardLoop::take(const ShardEvent& event, Header header, PushedSum* gradient) {
  TRY_ASSIGN(const ShardOutcome outcome, core_.take(event));
  const std::optional<PushFate> fate = outcome.fate;
  if (log_.has_follower()) {
    header.entry = log_.add();
  }
  if (fate == PushFate::kApplied || fate == PushFate::kStaged) {
    if (gradient->span().empty()) {
      return Error{Errc::kCorrupt, "a slice without its gradient"};  // of a leader only
    }
    kept_[event.push.slice] = Kept{std::move(*gradient), header, gate(), false};
  }
  if (link_) {
    link_->send({header, words_of(event)});
  }
  for (const MemberId worker : outcome.departed) {
    if (Session* session = session_of(worker)) {
      session->over = true;  // it is fenced: nothing that it says counts any more
    }
  }
  if (outcome.restore) {
    restore(*outcome.restore);
  }
  if (outcome.update) {
    apply(*outcome.update);
  }
  own_facts_.at_once += event.push.at_once && fate == PushFate::kApplied ? 1 : 0;
  const bool watches = role_ == ShardRole::kLeads && core_.leases() != nullptr;
  if (watches && event.kind == ShardEventKind::kPush) {
    speeds_.arrived(monotonic_now(), event.push.worker);
  } else if (watches && event.kind == ShardEventKind::kRest) {
    speeds_.probe_done(monotonic_now(), event.push.worker);
  }
  deliver(outcome.grants);
  answer(outcome.answers);
  if (watches && event.kind != ShardEventKind::kStragglers) {
    follow_stragglers();
  }
  return {};
}

void ShardLoop::apply(const Update& update) {
  for (const auto& session : sessions_) {
    session->stream.keep_copies();  // of the parameters that are about to change
  }
  UpdateFacts facts;
  facts.update = update;
  std::vector<SliceGradient> slices;
  for (const std::uint64_t slice : update.slices) {
    Kept& kept = kept_.at(slice);
    kept.is_applied = true;
    slices.push_back({kept.sum.span(), kept.header.count});
    facts.samples += kept.header.samples;
    facts.correct += kept.header.correct;
    facts.microbatches += kept.header.count;
    facts.loss += kept.header.loss;
    for (std::size_t lane = 0; lane < facts.sample_hash.size(); ++lane) {
      facts.sample_hash[lane] += kept.header.sample_hash[lane];
    }
  }
  if (update.begins_phase && options_.divergence.falls_back && !core_.plan().rewound()) {
    state_.keep(update.committed_before);
  }
  state_.apply(slices, update);
  if (role_ == ShardRole::kFollows) {
    listener_.on_followed(facts);
  } else {
    unsaid_.add(gate(), facts);
  }
  release();
}

void ShardLoop::restore(const Rewind& rewind) {
  for (const auto& session : sessions_) {
    session->stream.keep_copies();
  }
  state_.restore(rewind.to);
  const RewindFacts facts{rewind, core_.plan().steps_before(rewind.at), core_.divergence()};
  if (role_ == ShardRole::kFollows) {
    listener_.on_rewound(facts);
  } else {
    unsaid_.add(gate(), facts);
  }
}

void ShardLoop::answer(const std::vector<MemberId>& workers) {
  for (const MemberId worker : workers) {
    Session* session = session_of(worker);
    if (session == nullptr) {
      continue;  // it asks again when it has connected again
    }
    Header header;
    header.type = MessageType::kParameters;
    header.worker = value(worker);
    header.shard = options_.number;
    header.version = core_.order().version();
    header.question = session->question;
    const ByteSpan values = std::as_bytes(state_.values());
    if (session->slots != nullptr) {
      header.slot = session->slots->write_answer(values);
      own_facts_.bytes_shared += header.slot != 0 ? payload_bytes_ : 0;
    }
    session->stream.send(header, values, {}, options_.payload_hashes, gate());
    own_facts_.bytes_out += kHeaderBytes + payload_bytes_;
    if (const Result<void> sent = session->stream.flush(); !sent.ok()) {
      close(*session, sent.error().detail);
    }
  }
}

void ShardLoop::send_state(Session& session, std::uint64_t question) {
  Header header;
  header.type = MessageType::kState;
  header.worker = value(*session.worker);
  header.shard = options_.number;
  const StateVersion state = core_.order().state();
  header.version = state.version;
  header.slice = state.slices;
  header.prefix = state.prefix;
  header.question = question;
  // The worker has given up what it asked before.
  own_facts_.bytes_out -= session.stream.withdraw(MessageType::kState);
  session.stream.send(header, std::as_bytes(state_.values()), std::as_bytes(state_.momentum()),
                      options_.payload_hashes, gate());
  own_facts_.bytes_out += kHeaderBytes + 2 * payload_bytes_;
}

void ShardLoop::deliver(const Grants& grants) {
  for (const Grant& grant : grants) {
    if (role_ == ShardRole::kLeads) {
      note_lease(grant);
    }
    Session* session = session_of(grant.worker);
    if (session == nullptr) {
      continue;  // it comes again with the connection
    }
    Header header = header_of(grant.lease);
    header.worker = value(grant.worker);
    session->stream.send(header, {}, {}, false, gate());
  }
}

void ShardLoop::note_lease(const Grant& grant) {
  if (!core_.leases()->shows_speeds()) {
    speeds_.forget_leases();
  } else if (grant.lease.kind == LeaseKind::kCompute) {
    speeds_.leased(monotonic_now(), grant.worker, grant.lease.serial, grant.lease.count);
  } else if (grant.lease.kind == LeaseKind::kProbe) {
    ++own_facts_.probes;
    speeds_.probed(monotonic_now(), grant.worker, grant.lease.count);
  }
}

/// Times are the leader's own; what it makes of them its follower is told.
void ShardLoop::follow_stragglers() {
  const std::vector<StragglerChange> changes = speeds_.take_changes();
  if (options_.stragglers == StragglerPolicy::kNone || changes.empty()) {
    return;
  }
  for (const StragglerChange& change : changes) {
    listener_.on_straggler(change);
  }
  set_stragglers(speeds_.stragglers());
}

void ShardLoop::set_stragglers(const std::map<MemberId, double>& stragglers) {
  Header header;
  header.type = MessageType::kStragglers;
  const ShardEvent event{.kind = ShardEventKind::kStragglers, .stragglers = stragglers};
  ENSURE(take(event, header, nullptr).ok(), "anybody may be slow");
}

void ShardLoop::check_quiet() {
  const bool is_safe = role_ == ShardRole::kLeads && log_.last() <= log_.safe();
  if (core_.leases() == nullptr || !is_safe) {
    return;
  }
  if (core_.leases()->is_over() && !std::exchange(told_over_, true)) {
    listener_.on_over();  // before an answer to an order to stop: nothing is left to stop
  }
  if (!told_quiet_ && core_.leases()->is_quiet()) {
    told_quiet_ = true;
    listener_.on_quiet(view_);
  }
}

void ShardLoop::publish_facts() {
  own_facts_.leads = role_ == ShardRole::kLeads;
  own_facts_.version = core_.order().version();
  own_facts_.committed = core_.order().applied().count();
  own_facts_.repeats = core_.repeats();
  if (const LeaseTable* leases = core_.leases()) {
    own_facts_.late = leases->late();
    own_facts_.reissued = leases->reissued();
    own_facts_.mixed = leases->mixed();
  }
  own_facts_.undone = core_.undone();
  own_facts_.bytes_followed = link_ ? link_->bytes_out() : own_facts_.bytes_followed;
  const std::lock_guard lock(mutex_);
  if (own_facts_.version != facts_.version) {
    own_facts_.staleness = core_.order().staleness();
  }
  facts_ = own_facts_;
}

}  // namespace mayfly::parameter_server
