#include "engine/run/job_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/try_assign.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

constexpr int kClassesMax = 1'000'000;
constexpr int kImageSizeMax = 1 << 15;

}  // namespace

std::string to_json(const JobFacts& facts) {
  return json_text(object_of(facts));
}

std::string changes_of(const JobFacts& before, const JobFacts& now) {
  std::vector<std::pair<std::string, std::string>> old = before.program.equals;
  std::vector<std::pair<std::string, std::string>> present = now.program.equals;
  for (const auto& [facts, list] : {std::pair(&before, &old), std::pair(&now, &present)}) {
    list->emplace_back("data set", facts->data);
    list->emplace_back("samples", fmt::format("{}", facts->train_samples));
    list->emplace_back("batch", fmt::format("{}", facts->program.global_batch));
    list->emplace_back("microbatch", fmt::format("{}", facts->program.microbatch));
  }
  std::string text;
  for (const auto& [name, value] : present) {
    const auto was = std::ranges::find(old, name, &std::pair<std::string, std::string>::first);
    if (was != old.end() && was->second != value && !name.starts_with("initial values")) {
      text += fmt::format("{}{} {} (was {})", text.empty() ? "" : ", ", name, value, was->second);
    }
  }
  return text;
}

std::string sentence_of(const JobFacts& facts, const JobConfig& config) {
  const ProgramFacts& program = facts.program;
  if (program.steps == 0) {
    return fmt::format("the job's data set is {}, {} training images of {} classes", facts.data,
                       facts.train_samples, facts.classes);
  }
  std::string text = fmt::format(
      "the program trains {} steps of {} samples in microbatches of {}, out of {} samples of {}",
      program.steps, program.global_batch, program.microbatch, facts.train_samples, facts.data);
  const std::uint32_t workers = config.workers;
  if (const std::uint32_t count = program.global_batch / program.microbatch; count < workers) {
    text += fmt::format(
        "; a step has {} microbatch{}, so {} of {} workers have nothing to compute: "
        "give the job a smaller microbatch",
        count, count == 1 ? "" : "es", workers - count, workers);
  }
  if (!config.resume.empty()) {
    const Result<JobFacts> before = facts_on_record("", config.resume);
    const std::string changes = before.ok() ? changes_of(before.value(), facts) : "";
    text += changes.empty() ? "" : "; unlike in the run that it resumes: " + changes;
    // The position in the order of samples is the number of steps times the batch.
    const bool is_elsewhere =
        before.ok() && (before.value().program.global_batch != program.global_batch ||
                        before.value().train_samples != facts.train_samples);
    text += is_elsewhere
                ? "; some samples are left out or repeated in the pass in which it continues"
                : "";
  }
  return text;
}

Result<JobFacts> parse_facts(const std::string& text) {
  JobFacts facts;
  TRY(with_object("these are not the facts of a job", text,
                  [&facts](const json::object& object) { facts = record_of<JobFacts>(object); }));
  const ProgramFacts& program = facts.program;
  if (program.steps > 0) {
    return program.global_batch > 0 && program.microbatch > 0 && facts.train_samples > 0
               ? Result<JobFacts>(std::move(facts))
               : Result<JobFacts>(Error{Errc::kCorrupt, "no program has such facts"});
  }
  const bool is_sound = facts.classes > 0 && facts.classes <= kClassesMax && facts.image_size > 0 &&
                        facts.image_size <= kImageSizeMax && facts.train_samples > 0;
  return is_sound ? Result<JobFacts>(std::move(facts))
                  : Result<JobFacts>(Error{Errc::kCorrupt, "no data set has such facts"});
}

std::string facts_path(const std::string& run_dir) {
  return run_dir + "/facts.json";
}

Result<JobFacts> read_facts(const std::string& run_dir) {
  TRY_ASSIGN(const std::string content, read_text_file(facts_path(run_dir), kFactsBytesMax + 1));
  Result<JobFacts> facts = parse_facts(content);
  return facts.ok() ? std::move(facts)
                    : Result<JobFacts>(
                          Error{Errc::kCorrupt, facts_path(run_dir) + ": " + facts.error().detail});
}

Result<JobFacts> facts_on_record(const std::string& run_dir, const std::string& resume) {
  if (resume.empty()) {
    return read_facts(run_dir);
  }
  Result<JobFacts> facts = read_facts(resume);
  return facts.ok() ? std::move(facts) : read_facts(resume + "/../..");
}

}  // namespace mayfly::engine
