#pragma once

// Well-formed messages with any content, as a member that knows the token could send. Numbers are
// drawn near meaningful values, and from the limits of their types.

#include <string>
#include <utility>

#include "base/random.hpp"
#include "elastic/core/messages.hpp"

namespace mayfly::elastic {

class AnyMessage {
 public:
  AnyMessage(RandomStream& random, ViewId view, Step committed, std::uint32_t microbatches)
      : random_(random), view_(view), committed_(committed), microbatches_(microbatches) {}

  /// A message of any kind, also of kinds that no member should send.
  [[nodiscard]] Message draw() {
    return draw_kind(random_.below(std::variant_size_v<Message>),
                     std::make_index_sequence<std::variant_size_v<Message>>());
  }

 private:
  template <std::size_t... Kind>
  Message draw_kind(std::size_t kind, std::index_sequence<Kind...>) {
    Message message;
    (void)((kind == Kind ? (message = fill(std::variant_alternative_t<Kind, Message>{}), true)
                         : false) ||
           ...);
    return message;
  }

  template <typename Other>
  Message fill(Other other) {
    return other;
  }
  Message fill(Ready m) {
    m.committed = step();
    m.state_bytes = random_.bits() >> random_.below(64);
    return m;
  }
  Message fill(Stopped m) {
    m.view = view();
    m.committed = step();
    m.held = set();
    m.finished = random_.below(4) == 0;
    m.failed = random_.below(2) == 0;
    m.observed = step();
    if (random_.below(2) == 0) {
      m.culprit = MemberId{random_.below(12)};
    }
    return m;
  }
  Message fill(Formed m) {
    m.view = view();
    return m;
  }
  Message fill(Synced m) {
    m.view = view();
    return m;
  }
  Message fill(CaughtUp m) {
    m.view = view();
    m.committed = step();
    return m;
  }
  Message fill(Progress m) {
    m.view = view();
    m.committed = step();
    const float edges[] = {0.0F, 1e-30F, 1.0F, 7.5F, 1e30F};
    m.microbatch_ms = edges[random_.below(5)];
    m.stages = {edges[random_.below(5)],
                edges[random_.below(5)],
                edges[random_.below(5)],
                edges[random_.below(5)],
                static_cast<std::uint32_t>(random_.below(1U << 31)),
                static_cast<std::uint16_t>(random_.below(300)),
                static_cast<std::uint16_t>(random_.below(300)),
                static_cast<std::uint32_t>(random_.below(1000)),
                random_.below(2) == 1};
    return m;
  }
  Message fill(StoreSet m) {
    m.view = view();
    m.key = key();
    m.value.resize(random_.below(2000));
    return m;
  }
  Message fill(StoreGet m) {
    m.view = view();
    m.key = key();
    return m;
  }
  Message fill(ViewWanted m) {
    m.view = view();
    return m;
  }
  Message fill(LeaveRequest m) {
    m.reason = "any";
    return m;
  }

  ViewId view() {
    switch (random_.below(8)) {
      case 0: return ViewId{0};
      case 1: return next(view_);
      case 2: return ViewId{random_.bits()};
      default: return view_;
    }
  }
  Step step() {
    switch (random_.below(8)) {
      case 0: return Step{0};
      case 1: return next(committed_);
      case 2: return Step{value(committed_) + random_.below(5)};
      case 3: return Step{~std::uint64_t{0} >> random_.below(64)};
      default: return committed_;
    }
  }
  MicrobatchSet set() {
    MicrobatchSet drawn;
    const std::uint32_t bound = random_.below(4) == 0 ? kMicrobatchesMax : microbatches_;
    for (std::uint64_t n = random_.below(4); n > 0; --n) {
      drawn.add(static_cast<std::uint32_t>(random_.below(bound)));
    }
    return drawn;
  }
  std::string key() { return std::string(1 + random_.below(3), 'k'); }

  RandomStream& random_;
  ViewId view_;
  Step committed_;
  std::uint32_t microbatches_;
};

}  // namespace mayfly::elastic
