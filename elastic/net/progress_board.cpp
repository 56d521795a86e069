#include "elastic/net/progress_board.hpp"

namespace mayfly::elastic {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr unsigned kActivityShift = 56;
// A word of the trainer contains activity, bucket and step, beginning with the highest bits; a word
// of a compute thread contains activity, microbatch and bucket.
constexpr unsigned kTrainerBucketShift = 40;
constexpr unsigned kMicrobatchShift = 28;
constexpr std::uint64_t kStepMax = (std::uint64_t{1} << kTrainerBucketShift) - 1;
constexpr std::uint64_t kTrainerBucketNone = 0xffff;
constexpr std::uint64_t kPartNone = (std::uint64_t{1} << kMicrobatchShift) - 1;

std::uint64_t packed(std::uint32_t part, std::uint64_t none) {
  return part < none ? part : none;
}

std::uint32_t unpacked(std::uint64_t word, unsigned shift, std::uint64_t none) {
  const std::uint64_t part = (word >> shift) & none;
  return part == none ? kNoPart : static_cast<std::uint32_t>(part);
}

Activity activity_of(std::uint64_t word) {
  const std::uint64_t number = word >> kActivityShift;
  return number < kActivities ? static_cast<Activity>(number) : Activity::kIdle;
}

std::uint64_t word_of(Activity activity, std::uint64_t rest) {
  return (static_cast<std::uint64_t>(activity) << kActivityShift) | rest;
}

}  // namespace

void ProgressBoard::put(Place& place, std::uint64_t word) {
  place.word.store(word, kRelaxed);
  place.moves.store(moves_.fetch_add(1, kRelaxed) + 1, kRelaxed);
}

void ProgressBoard::enter(Activity activity, Step step, std::uint32_t bucket) {
  put(trainer_, word_of(activity, packed(bucket, kTrainerBucketNone) << kTrainerBucketShift |
                                      (value(step) & kStepMax)));
}

void ProgressBoard::compute(std::uint32_t thread, Activity activity, std::uint32_t microbatch) {
  put(threads_.at(thread % kThreads),
      word_of(activity, packed(microbatch, kPartNone) << kMicrobatchShift | kPartNone));
}

void ProgressBoard::passed(std::uint32_t thread, std::uint32_t bucket) {
  Place& place = threads_.at(thread % kThreads);
  put(place, (place.word.load(kRelaxed) & ~kPartNone) | packed(bucket, kPartNone));
}

void ProgressBoard::rest(std::uint32_t thread) {
  put(threads_.at(thread % kThreads), word_of(Activity::kIdle, 0));
}

WorkerPosition ProgressBoard::position() const {
  WorkerPosition position;
  const std::uint64_t word = trainer_.word.load(kRelaxed);
  position.activity = activity_of(word);
  position.step = Step{word & kStepMax};
  position.bucket = unpacked(word, kTrainerBucketShift, kTrainerBucketNone);
  position.moves = moves_.load(kRelaxed);
  if (position.activity != Activity::kCompute && position.activity != Activity::kEvaluate) {
    return position;
  }
  std::uint64_t least = UINT64_MAX;
  for (const Place& place : threads_) {
    const std::uint64_t compute = place.word.load(kRelaxed);
    const std::uint64_t moves = place.moves.load(kRelaxed);
    if (activity_of(compute) != Activity::kIdle && moves < least) {
      least = moves;
      position.activity = activity_of(compute);
      position.microbatch = unpacked(compute, kMicrobatchShift, kPartNone);
      // The bucket that follows. Backward computes the last layers first; their bucket has number
      // 0.
      const std::uint32_t passed = unpacked(compute, 0, kPartNone);
      position.bucket = passed == kNoPart ? 0 : passed + 1;
    }
  }
  return position;
}

}  // namespace mayfly::elastic
