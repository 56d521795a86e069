// Mutated control messages, frames and view logs. MAYFLY_TEST_FUZZ_ROUNDS=N runs N inputs of each
// kind instead of 20,000. The sanitizer presets detect more errors.

#include <gtest/gtest.h>

#include <cstdlib>

#include "elastic/core/view_log.hpp"
#include "elastic/net/frame.hpp"
#include "tests/fuzz/mutator.hpp"
#include "tests/unit/elastic/any_message.hpp"

namespace mayfly::elastic {
namespace {

std::uint64_t rounds() {
  const char* text = std::getenv("MAYFLY_TEST_FUZZ_ROUNDS");
  return text == nullptr ? 20'000 : std::strtoull(text, nullptr, 10);
}

View view_of(RandomStream& random, std::uint64_t id) {
  View view{ViewId{id}, random.bits(), Step{random.below(1000)}, Rank{0}, {}, {}};
  std::uint32_t first = 0;
  for (std::uint64_t member = 1 + random.below(3); member < 8; member += 1 + random.below(3)) {
    const auto count = static_cast<std::uint32_t>(random.below(5));
    view.members.push_back({MemberId{member},
                            "10.0.0.1:" + std::to_string(member),
                            MicrobatchSet::range(first, count),
                            first,
                            count,
                            {}});
    if (random.below(3) == 0) {
      view.members.back().first_step.add(static_cast<std::uint32_t>(random.below(30)));
    }
    first += count;
  }
  return view;
}

/// A view after `base`; some of the members that are in both keep their microbatches.
View next_of(RandomStream& random, const View& base) {
  View view = view_of(random, value(base.id) + 1);
  for (ViewMember& member : view.members) {
    const ViewMember* before = member_of(base, member.id);
    if (before != nullptr && random.below(2) == 0) {
      member.first_step = due_after(base, *before, view.committed);
    }
  }
  return view;
}

/// A message of any kind, with realistic views.
Message any(RandomStream& random) {
  switch (random.below(8)) {
    case 0: return NewView{view_of(random, 3)};
    case 1: {
      const View base = view_of(random, 3);
      return NewViewDelta{make_delta(base, next_of(random, base))};
    }
    case 2: {
      Resume resume;
      resume.view = view_of(random, 3);
      return resume;
    }
    case 3: {
      Hello hello;
      hello.nonce.resize(32);
      hello.fingerprint = {{"model", "resnet20"}, {"seed", std::to_string(random.bits())}};
      return hello;
    }
    default: break;
  }
  Message message = AnyMessage(random, ViewId{3}, Step{40}, 12).draw();
  const bool has_view =
      std::holds_alternative<NewView>(message) || std::holds_alternative<NewViewDelta>(message);
  return has_view ? Message{NewView{view_of(random, 3)}} : message;  // an empty one is no message
}

TEST(ControlFuzz, WhatIsDecodedIsExactlyWhatWouldBeEncoded) {
  std::uint64_t accepted = 0;
  for (std::uint64_t seed = 0; seed < rounds(); ++seed) {
    RandomStream random{CounterRandom(seed).split("messages")};
    fuzz::Mutator mutator(random);
    const Bytes bytes = mutator.mutate(encode(any(random)), encode(any(random)));
    const Result<Message> message = decode(bytes);
    if (message.ok()) {
      ++accepted;
      ASSERT_EQ(encode(message.value()), bytes)
          << "seed " << seed << ": " << name_of(message.value()) << " has two encodings";
    }
  }
  EXPECT_GT(accepted, rounds() / 100) << "the mutations must also find what is well-formed";
}

TEST(ControlFuzz, ADeltaOfAnythingNeverEndsWhoAppliesIt) {
  for (std::uint64_t seed = 0; seed < rounds(); ++seed) {
    RandomStream random{CounterRandom(seed).split("deltas")};
    fuzz::Mutator mutator(random);
    const View base = view_of(random, 3);
    const Bytes delta = encode(NewViewDelta{make_delta(base, next_of(random, base))});
    const Result<Message> message = decode(mutator.mutate(delta, delta));
    if (message.ok() && std::holds_alternative<NewViewDelta>(message.value())) {
      (void)apply_delta(base, std::get<NewViewDelta>(message.value()).delta);
    }
  }
}

TEST(ControlFuzz, AStreamOfFramesEndsOrGoesOnButKeepsItsBounds) {
  for (std::uint64_t seed = 0; seed < rounds() / 4; ++seed) {
    RandomStream random{CounterRandom(seed).split("frames")};
    fuzz::Mutator mutator(random);
    Bytes stream;
    for (int i = 0; i < 4; ++i) {
      const Bytes frame = to_frame(any(random));
      stream.insert(stream.end(), frame.begin(), frame.end());
    }
    stream = mutator.mutate(stream, stream);
    FrameReader reader(kUnauthenticatedFrameBytesMax);
    bool is_open = true;
    for (std::size_t at = 0; at < stream.size() && is_open;) {
      const std::span<std::byte> space = reader.space();
      ASSERT_LE(space.size(), 2 * kUnauthenticatedFrameBytesMax + kFrameHeaderBytes);
      const std::size_t bytes =
          std::min({space.size(), stream.size() - at, std::size_t{1 + random.below(300)}});
      std::copy_n(stream.begin() + static_cast<std::ptrdiff_t>(at), bytes, space.begin());
      reader.filled(bytes);
      at += bytes;
      for (;;) {
        const Result<std::optional<Message>> next = reader.next();
        is_open = next.ok();
        if (!next.ok() || !next.value()) {
          break;
        }
      }
    }
  }
}

TEST(ControlFuzz, AViewLogIsReadUpToItsDamageOrRefused) {
  for (std::uint64_t seed = 0; seed < rounds(); ++seed) {
    RandomStream random{CounterRandom(seed).split("logs")};
    fuzz::Mutator mutator(random);
    ViewLog log;
    Bytes file;
    const auto add = [&](const LogRecord& record) {
      const Bytes bytes = log.add(record);
      file.insert(file.end(), bytes.begin(), bytes.end());
    };
    add(log_record::JobStarted{random.bits(), 12, {}});
    add(log_record::IncarnationStarted{Incarnation{1}});
    for (std::uint64_t view = 1; view < 4; ++view) {
      add(log_record::ViewPublished{view_of(random, view)});
    }
    const Bytes damaged = mutator.mutate(file, file);
    const Result<LogContents> contents = ViewLog::replay(damaged);
    if (contents.ok()) {
      ASSERT_LE(contents.value().good_bytes, damaged.size()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace mayfly::elastic
