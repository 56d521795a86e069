#include "elastic/core/worker_position.hpp"

#include <array>

namespace mayfly::elastic {
namespace {

struct Words {
  const char* name;
  const char* sentence;
};
constexpr std::array<Words, kActivities> kWords = {{{"idle", "waits for the coordinator"},
                                                    {"form", "forms its group"},
                                                    {"sync", "waits for the state"},
                                                    {"exchange", "waits for an all-reduce"},
                                                    {"load", "waits for its data"},
                                                    {"compute", "computes"},
                                                    {"commit", "applies the update"},
                                                    {"evaluate", "evaluates"},
                                                    {"checkpoint", "writes a checkpoint"}}};

}  // namespace

bool waits_for_others(Activity activity) {
  return activity <= Activity::kExchange;
}

const char* name_of(Activity activity) {
  return kWords.at(static_cast<std::size_t>(activity)).name;
}

std::string describe(const WorkerPosition& position) {
  std::string text = kWords.at(static_cast<std::size_t>(position.activity)).sentence;
  if (position.microbatch != kNoPart) {
    text += " microbatch " + std::to_string(position.microbatch);
  }
  if (position.step != Step{}) {
    text += (position.microbatch != kNoPart ? " of step " : " in step ") +
            std::to_string(value(position.step));
  }
  if (position.bucket != kNoPart) {
    text += ", bucket " + std::to_string(position.bucket);
  }
  return text;
}

}  // namespace mayfly::elastic
