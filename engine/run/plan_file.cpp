#include "engine/run/plan_file.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/own_hash.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kPlanBytesMax = std::size_t{8} << 20;
constexpr const char* kPlanFormat = "mayfly-plan";
constexpr int kPlanVersion = 1;
constexpr const char* kPlanHash = "plan_xxh3";

Error bad_plan(const std::string& path, const std::string& why) {
  return {Errc::kInvalidInput,
          fmt::format("plan {}: {}; create it again with `mayfly plan --write`, or start the job "
                      "without the setting plan",
                      path, why)};
}

}  // namespace

std::string plan_path(const std::string& run_dir) {
  return run_dir + "/" + kPlanName;
}

std::string plan_file_text(const std::string& plan) {
  return with_own_hash(fmt::format(R"({{"format": "{}", "version": {}, {})", kPlanFormat,
                                   kPlanVersion, plan.substr(1)),
                       kPlanHash);
}

Result<std::string> read_plan_file(const std::string& path) {
  Result<std::string> text = read_text_file(path, kPlanBytesMax);
  if (!text.ok()) {
    return bad_plan(path, text.error().detail);
  }
  bool is_plan = false;
  const Result<void> read =
      with_object("not JSON", text.value(), [&is_plan](const json::object& object) {
        is_plan = field_of<std::string>(object, "format") == kPlanFormat &&
                  field_of<int>(object, "version") == kPlanVersion;
      });
  if (!read.ok()) {
    return bad_plan(path, read.error().detail);
  }
  if (!is_plan) {
    return bad_plan(path, "not a plan of this version");
  }
  return fits_own_hash(text.value(), kPlanHash)
             ? std::move(text)
             : Result<std::string>(bad_plan(path, "was changed after it was written"));
}

}  // namespace mayfly::engine
