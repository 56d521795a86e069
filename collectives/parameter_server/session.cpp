#include "collectives/parameter_server/session.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace mayfly::parameter_server {

Session::Session(UniqueFd socket, SessionContext& context)
    : context_(context),
      stream_(std::move(socket), std::max(context.payload_bytes, kRosterBytesMax),
              &context.spare_copy) {}

void Session::greet(const Header& greeting) {
  greeting_ = greeting;
  peer_ = Peer::kGreeted;
}

void Session::admit_worker() {
  peer_ = Peer::kWorker;
  share_memory();
  Header welcome;
  welcome.type = MessageType::kWelcome;
  welcome.flags = slots_ != nullptr ? flags::kShares : 0;
  welcome.worker = greeting_.worker;
  welcome.shard = context_.shard;
  send(welcome);
}

/// Memory of another size is not used; then payloads are sent over the socket.
void Session::share_memory() {
  const UniqueFd memory = stream_.take_descriptor();
  if (!memory.valid() || context_.payload_bytes == 0) {
    return;
  }
  Result<std::shared_ptr<SharedSlots>> mapped =
      SharedSlots::map(memory.get(), context_.payload_bytes);
  if (mapped.ok()) {
    slots_ = std::move(mapped).value();
  } else {
    log::info(fmt::format("shard {}: worker {}: {}", context_.shard, greeting_.worker,
                          mapped.error().detail));
  }
}

void Session::fail(const std::string& why) {
  if (is_worker()) {
    log::info(fmt::format("shard {}: worker {}: {}", context_.shard, greeting_.worker, why));
  }
  end();
}

short Session::events() const {
  const int reads = is_greeted() ? POLLRDHUP : POLLIN;
  return static_cast<short>(reads | (stream_.wants_to_send() ? POLLOUT : 0));
}

void Session::serve(short events, const MessageStream::OnHeader& on_header,
                    const MessageStream::OnMessage& on_message) {
  if (is_over()) {
    return;
  }
  if (is_greeted()) {
    if ((events & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
      end();  // the process has closed the connection before its view began here
    }
    return;
  }
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    const Result<void> received = stream_.receive(on_header, [&](const Header& header) {
      context_.bytes_in += kHeaderBytes + header.payload_bytes;
      return on_message(header);
    });
    if (!received.ok()) {
      fail(received.error().detail);
    }
  }
}

void Session::flush() {
  if (!is_over() && stream_.wants_to_send()) {
    if (const Result<void> sent = stream_.flush(); !sent.ok()) {
      fail(sent.error().detail);
    }
  }
}

Result<PayloadTarget> Session::expect(const Header& header, PushedGradients& gradients) {
  const bool is_push = header.type == MessageType::kPush;
  if (header.payload_bytes != (is_push ? context_.payload_bytes : 0)) {
    return Error{Errc::kCorrupt, "a message of the wrong size"};
  }
  if (is_push && header.count == 0) {
    return Error{Errc::kCorrupt, "an empty gradient"};
  }
  if (!is_worker()) {
    const bool greets = header.type == MessageType::kHello || header.type == MessageType::kFollow;
    return greets ? Result<PayloadTarget>(PayloadTarget{})
                  : Result<PayloadTarget>(Error{Errc::kRefused, "no hello"});
  }
  if (header.slot != 0) {
    const bool is_there = slots_ != nullptr && header.slot <= SharedSlots::kGradients;
    return is_there ? Result<PayloadTarget>(PayloadTarget{})
                    : Result<PayloadTarget>(Error{Errc::kCorrupt, "a slot that is not shared"});
  }
  if (!is_push) {
    return PayloadTarget{};
  }
  if (space_.own.size() == 0) {
    space_ = gradients.space();
  }
  return PayloadTarget{std::as_writable_bytes(space_.own.span()), {}};
}

/// The gradient stays in its slot if its worker has written it there.
Result<PushedSum> Session::take_gradient(const Header& push) {
  if (push.slot == 0) {
    return std::exchange(space_, PushedSum());
  }
  PushedSum gradient{{}, TakenSlot(slots_, push.slot)};
  const ByteSpan bytes = std::as_bytes(gradient.span());
  if (push.payload_check != 0 && push.payload_check != payload_hash(bytes, {})) {
    return Error{Errc::kCorrupt, "a payload was damaged on its way"};
  }
  context_.bytes_shared += bytes.size();
  return gradient;
}

void Session::send_lease(const Lease& lease, std::uint64_t gate) {
  Header header = header_of(lease);
  header.worker = greeting_.worker;
  send(header, gate);
}

void Session::send_parameters(std::uint64_t version, std::span<const float> values,
                              std::uint64_t gate) {
  Header header;
  header.type = MessageType::kParameters;
  header.worker = greeting_.worker;
  header.shard = context_.shard;
  header.version = version;
  header.question = question_;
  const ByteSpan payload = std::as_bytes(values);
  if (slots_ != nullptr) {
    header.slot = slots_->write_answer(payload);
    context_.bytes_shared += header.slot != 0 ? payload.size() : 0;
  }
  stream_.send(header, payload, {}, context_.payload_hashes, gate);
  context_.bytes_out += kHeaderBytes + payload.size();
  flush();
}

void Session::send_state(const StateVersion& version, std::span<const float> values,
                         std::span<const float> momentum, std::uint64_t question,
                         std::uint64_t gate) {
  Header header;
  header.type = MessageType::kState;
  header.worker = greeting_.worker;
  header.shard = context_.shard;
  header.version = version.version;
  header.slice = version.slices;
  header.prefix = version.prefix;
  header.question = question;
  context_.bytes_out -= stream_.withdraw(MessageType::kState);
  const ByteSpan first = std::as_bytes(values);
  const ByteSpan second = std::as_bytes(momentum);
  stream_.send(header, first, second, context_.payload_hashes, gate);
  context_.bytes_out += kHeaderBytes + first.size() + second.size();
}

}  // namespace mayfly::parameter_server
