#include "library/api_job.hpp"

#include <algorithm>
#include <cstring>

#include "base/text.hpp"

namespace mayfly::library {
namespace {

using engine::ProgramComputer;
using engine::ProgramTask;

mf_outcome outcome_of(elastic::DismissReason reason) {
  using enum elastic::DismissReason;
  switch (reason) {
    case kJobDone: return MF_DONE;
    case kDrained: return MF_DRAINED;
    case kJobStopped: return MF_STOPPED;
    default: return MF_LOST;
  }
}

mf_task_kind kind_of(ProgramTask::Kind kind) {
  using enum ProgramTask::Kind;
  switch (kind) {
    case kMicrobatch: return MF_MICROBATCH;
    case kUpdate: return MF_UPDATE;
    case kLoad: return MF_LOAD;
    case kEvaluate: return MF_EVALUATE;
    case kEnd: break;
  }
  return MF_END;
}

}  // namespace

void describe(mf_job& job, const ProgramTask& task, mf_task& out) {
  const std::size_t size = out.size;
  out = {};
  out.size = size;
  out.kind = kind_of(task.kind);
  out.step = task.step;
  out.number = task.number;
  out.detail = "";
  ProgramComputer& computer = job.worker->computer();
  if (task.kind == ProgramTask::Kind::kMicrobatch || task.kind == ProgramTask::Kind::kEvaluate) {
    job.samples = computer.samples_of(task);
    out.samples = job.samples.ids.data();
    out.epochs = job.samples.epochs.data();
    out.sample_count = job.samples.ids.size();
    out.seed = computer.seed_of(task);
  } else if (task.kind == ProgramTask::Kind::kUpdate) {
    const float* means = job.worker->state().mean_gradients().data();
    job.gradients.clear();
    for (const std::size_t elements : job.parameter_elements) {
      job.gradients.push_back(means);
      means += elements;
    }
    out.gradients = job.gradients.data();
    out.loss = task.loss;
    out.speaks = computer.has_first() ? 1 : 0;
  } else if (task.kind == ProgramTask::Kind::kLoad) {
    job.loaded_state = &job.worker->state().take_loaded();
  } else {
    out.outcome = outcome_of(job.worker->end().reason);
    job.detail = printable(job.worker->end().detail);
    out.detail = job.detail.c_str();
  }
}

/// The text may contain names of files, which may be any bytes. It is not cut within a character,
/// which has up to four bytes.
void put_text(const std::string& text, std::span<char> out) {
  constexpr unsigned kTopBits = 0xc0;
  constexpr unsigned kGoesOn = 0x80;  // top bits of a byte that is not the first of a character
  const std::string shown = printable(text);
  std::size_t size = std::min(shown.size(), out.size() - 1);
  while (size > 0 && size < shown.size() &&
         (static_cast<unsigned char>(shown[size]) & kTopBits) == kGoesOn) {
    --size;
  }
  std::memcpy(out.data(), shown.data(), size);
  out[size] = '\0';
}

}  // namespace mayfly::library
