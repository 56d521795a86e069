#include "engine/run/job_facts.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/file.hpp"
#include "base/try_assign.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kFactsBytesMax = 1U << 20;
constexpr int kClassesMax = 1'000'000;
constexpr int kImageSizeMax = 1 << 15;

}  // namespace

std::string to_json(const JobFacts& facts) {
  return json_text(object_of(facts));
}

std::string sentence_of(const JobFacts& facts, std::uint32_t workers) {
  const ProgramFacts& program = facts.program;
  if (program.steps == 0) {
    return fmt::format("the job's data set is {}, {} training images of {} classes", facts.data,
                       facts.train_samples, facts.classes);
  }
  std::string text = fmt::format(
      "the program trains {} steps of {} samples in microbatches of {}, out of {} samples of {}",
      program.steps, program.global_batch, program.microbatch, facts.train_samples, facts.data);
  if (const std::uint32_t count = program.global_batch / program.microbatch; count < workers) {
    text += fmt::format(
        "; a step has {} microbatch{}, so {} of {} workers have nothing to compute: "
        "give the job a smaller microbatch",
        count, count == 1 ? "" : "es", workers - count, workers);
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
  TRY_ASSIGN(const std::string content, read_text_file(facts_path(run_dir), kFactsBytesMax));
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
