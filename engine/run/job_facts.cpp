#include "engine/run/job_facts.hpp"

#include <boost/json.hpp>
#include <charconv>
#include <limits>
#include <optional>

#include "base/file.hpp"
#include "base/text.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/run_directory.hpp"
#include "engine/run/run_records.hpp"

namespace mayfly::engine {
namespace {

namespace json = boost::json;

constexpr std::size_t kFactsBytesMax = 1U << 20;
constexpr int kClassesMax = 1'000'000;
constexpr int kImageSizeMax = 1 << 15;

std::string text_in(const json::object& object, const char* name) {
  return std::string(object.at(name).as_string());
}

std::optional<Digest> digest_of_text(const std::string& digits) {
  Digest digest;
  const char* begin = digits.data();
  const auto high = std::from_chars(begin, begin + 16, digest.high, 16);
  const auto low = std::from_chars(begin + 16, begin + 32, digest.low, 16);
  const bool is_whole = high.ptr == begin + 16 && low.ptr == begin + 32;
  return is_whole ? std::optional(digest) : std::nullopt;
}

}  // namespace

std::string to_json(const JobFacts& facts) {
  return JsonObject()
      .add("data", json_string(facts.data))
      .add("data_digest", json_string(to_string(facts.data_digest)))
      .add("classes", json_number(static_cast<std::uint64_t>(facts.classes)))
      .add("image_size", json_number(static_cast<std::uint64_t>(facts.image_size)))
      .add("train_samples", json_number(facts.train_samples))
      .add("left_out", to_json(facts.left_out))
      .add("device", json_string(facts.device))
      .add("isa", json_string(facts.isa))
      .add("conv_kernels", json_string(facts.conv_kernels))
      .text();
}

Result<JobFacts> parse_facts(const std::string& text_of_facts) {
  JobFacts facts;
  try {
    const json::value parsed = json::parse(text_of_facts);
    const json::object& object = parsed.as_object();
    facts.data = text_in(object, "data");
    const std::string digits = text_in(object, "data_digest");
    const std::optional<Digest> digest =
        digits.size() == 32 ? digest_of_text(digits) : std::nullopt;
    if (!digest) {
      return Error{Errc::kCorrupt, "'" + digits + "' is no digest of a data set"};
    }
    facts.data_digest = *digest;
    facts.classes = object.at("classes").to_number<int>();
    facts.image_size = object.at("image_size").to_number<int>();
    facts.train_samples = object.at("train_samples").to_number<std::uint64_t>();
    const json::object& left_out = object.at("left_out").as_object();
    facts.left_out.count = left_out.at("count").to_number<std::size_t>();
    for (const json::value& name : left_out.at("names").as_array()) {
      facts.left_out.names.emplace_back(name.as_string());
    }
    facts.device = text_in(object, "device");
    facts.isa = text_in(object, "isa");
    facts.conv_kernels = text_in(object, "conv_kernels");
  } catch (const std::exception& failure) {  // what Boost.JSON throws about another text
    return Error{Errc::kCorrupt, "these are no facts of a job: " + reason_of(failure)};
  }
  const bool is_sound = facts.classes > 0 && facts.classes <= kClassesMax && facts.image_size > 0 &&
                        facts.image_size <= kImageSizeMax && facts.train_samples > 0;
  return is_sound ? Result<JobFacts>(std::move(facts))
                  : Result<JobFacts>(Error{Errc::kCorrupt, "no data set is like that"});
}

std::string facts_path(const std::string& run_dir) {
  return run_dir + "/facts.json";
}

Result<JobFacts> read_facts(const std::string& run_dir) {
  const Result<std::string> content = read_text_file(facts_path(run_dir), kFactsBytesMax);
  if (!content.ok()) {
    return content.error();
  }
  Result<JobFacts> facts = parse_facts(content.value());
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
