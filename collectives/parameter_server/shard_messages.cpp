// What workers say to a shard, and its answers.

#include <algorithm>

#include "collectives/parameter_server/shard_loop.hpp"

namespace mayfly::parameter_server {

Result<PayloadTarget> ShardLoop::expect(Session& session, const Header& header) {
  const bool is_push = header.type == MessageType::kPush;
  if (header.payload_bytes != (is_push ? payload_bytes_ : 0)) {
    return Error{Errc::kCorrupt, "a message of the wrong size"};
  }
  if (!session.worker) {
    return header.type == MessageType::kHello
               ? Result<PayloadTarget>(PayloadTarget{})
               : Result<PayloadTarget>(Error{Errc::kRefused, "no hello"});
  }
  if (is_push && session.space.size() == 0) {
    session.space = take_buffer();
  }
  return is_push ? PayloadTarget{std::as_writable_bytes(session.space.span()), {}}
                 : PayloadTarget{};
}

Result<void> ShardLoop::handle(Session& session, const Header& header) {
  if (!session.worker) {
    session.hello = header;
    admit();
    return {};
  }
  const MemberId worker = *session.worker;
  switch (header.type) {
    case MessageType::kPush: return handle_push(session, header);
    case MessageType::kPull:
      session.question = header.question;
      answer(order_.pulled(worker, header.clock, header.wanted));
      return {};
    case MessageType::kRest:
      answer(order_.rested(worker));
      if (desk_) {
        speeds_.probe_done(monotonic_now(), worker);
        deliver(desk_->rested(worker, header.serial));
        follow_stragglers();
      }
      return {};
    case MessageType::kStatePull: send_state(session); return {};
    case MessageType::kBye: listener_.on_over(); return {};
    default: return Error{Errc::kCorrupt, "a message that workers do not send"};
  }
}

/// A gradient is applied only when all of it is here: a worker may die in the middle.
Result<void> ShardLoop::handle_push(Session& session, const Header& header) {
  Push push;
  push.worker = *session.worker;
  push.slice = header.slice;
  push.base_version = header.version;
  push.clock = header.clock;
  push.at_once = (header.flags & flags::kAtOnce) != 0;
  if ((header.flags & flags::kAsks) != 0) {
    push.wanted = header.wanted;
    session.question = header.question;
  }
  Result<PushOutcome> outcome = order_.pushed(push);
  if (!outcome.ok()) {
    return std::move(outcome).error();
  }
  const PushFate fate = outcome.value().fate;
  own_facts_.repeats += fate == PushFate::kRepeat ? 1 : 0;
  own_facts_.at_once += push.at_once && fate == PushFate::kApplied ? 1 : 0;
  if (fate == PushFate::kApplied || fate == PushFate::kStaged) {
    kept_[push.slice] = Kept{std::move(session.space), header};
    session.space = AlignedBuffer<float>();
  }
  if (outcome.value().update) {
    apply(*outcome.value().update);
  }
  if (desk_) {
    tell_desk(header, outcome.value());
  }
  answer(outcome.value().answers);
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
    const Kept& kept = kept_.at(slice);
    slices.push_back({kept.sum.span(), kept.header.count});
    facts.samples += kept.header.samples;
    facts.correct += kept.header.correct;
    facts.microbatches += kept.header.count;
    facts.loss += kept.header.loss;
    for (std::size_t lane = 0; lane < facts.sample_hash.size(); ++lane) {
      facts.sample_hash[lane] += kept.header.sample_hash[lane];
    }
  }
  state_.apply(slices, update.committed_before);
  for (const std::uint64_t slice : update.slices) {
    spare_.push_back(std::move(kept_.at(slice).sum));
    kept_.erase(slice);
  }
  listener_.on_update(facts);
}

void ShardLoop::tell_desk(const Header& header, const PushOutcome& outcome) {
  const MemberId worker{header.worker};
  speeds_.arrived(monotonic_now(), worker);
  deliver(desk_->confirmed(worker, header.serial));
  if (outcome.fate == PushFate::kStaged) {
    desk_->staged(header.slice);
  } else if (outcome.fate == PushFate::kLate) {
    deliver(desk_->dropped(header.slice));
  }
  if (outcome.update) {
    deliver(desk_->applied(outcome.update->slices));
  }
  if ((header.flags & flags::kWantsLease) != 0) {
    deliver(desk_->wants(worker));
  }
  follow_stragglers();
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
    header.version = order_.version();
    header.question = session->question;
    session->stream.send(header, std::as_bytes(state_.values()), {}, options_.payload_hashes);
    own_facts_.bytes_out += kHeaderBytes + payload_bytes_;
    if (const Result<void> sent = session->stream.flush(); !sent.ok()) {
      close(*session, sent.error().detail);
    }
  }
}

void ShardLoop::send_state(Session& session) {
  Header header;
  header.type = MessageType::kState;
  header.worker = value(*session.worker);
  header.shard = options_.number;
  header.version = order_.version();
  header.slice = order_.applied().count();
  session.stream.send(header, std::as_bytes(state_.values()), std::as_bytes(state_.momentum()),
                      options_.payload_hashes);
  own_facts_.bytes_out += kHeaderBytes + 2 * payload_bytes_;
}

void ShardLoop::deliver(const Grants& grants) {
  for (const Grant& grant : grants) {
    note_lease(grant);
    Session* session = session_of(grant.worker);
    if (session == nullptr) {
      continue;  // it comes again with the connection
    }
    Header header;
    header.type = MessageType::kLease;
    header.worker = value(grant.worker);
    header.lease_kind = static_cast<std::uint8_t>(grant.lease.kind);
    header.flags = grant.lease.version ? flags::kExact : 0;
    header.flags |= grant.lease.at_once ? flags::kAtOnce : 0;
    header.version = grant.lease.version.value_or(0);
    header.slice = grant.lease.first;
    header.count = grant.lease.count;
    header.clock = grant.lease.clock;
    header.serial = grant.lease.serial;
    session->stream.send(header);
  }
}

void ShardLoop::note_lease(const Grant& grant) {
  if (!desk_->shows_speeds()) {
    speeds_.forget_leases();
  } else if (grant.lease.kind == LeaseKind::kCompute) {
    speeds_.leased(monotonic_now(), grant.worker, grant.lease.serial, grant.lease.count);
  } else if (grant.lease.kind == LeaseKind::kProbe) {
    ++own_facts_.probes;
    speeds_.probed(monotonic_now(), grant.worker, grant.lease.count);
  }
}

void ShardLoop::follow_stragglers() {
  const std::vector<StragglerChange> changes = speeds_.take_changes();
  if (options_.stragglers == StragglerPolicy::kNone || changes.empty()) {
    return;
  }
  for (const StragglerChange& change : changes) {
    listener_.on_straggler(change);
  }
  deliver(desk_->set_stragglers(speeds_.stragglers()));
}

void ShardLoop::check_quiet() {
  if (desk_ && !told_quiet_ && desk_->is_quiet()) {
    told_quiet_ = true;
    listener_.on_quiet();
  }
}

void ShardLoop::publish_facts() {
  own_facts_.version = order_.version();
  own_facts_.committed = order_.applied().count();
  if (desk_) {
    own_facts_.late = desk_->late();
    own_facts_.reissued = desk_->reissued();
    own_facts_.mixed = desk_->mixed();
  }
  const std::lock_guard lock(mutex_);
  if (own_facts_.version != facts_.version) {
    own_facts_.staleness = order_.staleness();
  }
  facts_ = own_facts_;
}

}  // namespace mayfly::parameter_server
