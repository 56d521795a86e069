#include <fmt/format.h>

#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "base/usable_cores.hpp"
#include "cli/cli.hpp"
#include "datasets/photographs.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::cli {
namespace {

constexpr std::uint64_t kPhotographsMax = 100'000'000;
constexpr unsigned kMakersMax = 1024;

template <typename T>
Result<void> read_in_range(const ParsedArguments& arguments, const std::string& name, T least,
                           T most, T& number) {
  const std::string text = arguments.option(name);
  if (text.empty()) {
    return {};
  }
  const auto read = number_in<T>(text, least, most);
  if (!read) {
    return Error{Errc::kInvalidInput, fmt::format("--{} expects a whole number from {} to {}, got "
                                                  "'{}'",
                                                  name, least, most, text)};
  }
  number = *read;
  return {};
}

Result<datasets::PhotographSet> wanted_set(const ParsedArguments& arguments) {
  datasets::PhotographSet set;
  set.threads = static_cast<unsigned>(usable_cores());
  TRY(read_in_range<std::uint64_t>(arguments, "images", 1, kPhotographsMax, set.images));
  TRY(read_in_range<std::uint64_t>(arguments, "seed", 0, UINT64_MAX, set.seed));
  TRY(read_in_range(arguments, "size", datasets::kPhotographSideMin, datasets::kPhotographSideMax,
                    set.side));
  TRY(read_in_range(arguments, "threads", 1U, kMakersMax, set.threads));
  return set;
}

}  // namespace

int data(const ParsedArguments& arguments, Context& context) {
  const auto& words = arguments.positionals;
  if (words.size() != 2 || words[0] != "make" || words[1].empty()) {
    return context.complain(
        "data expects 'make FOLDER', the folder for the images (see mayfly data --help)",
        kExitUsage);
  }
  const Result<datasets::PhotographSet> set = wanted_set(arguments);
  if (!set.ok()) {
    return context.complain(set.error());
  }
  const std::string& folder = words[1];
  const auto made = datasets::make_photographs(folder, set.value());
  if (!made.ok()) {
    return context.complain(made.error());
  }
  const auto& [images, bytes] = made.value();
  if (arguments.has("json")) {
    context.out << engine::json_text({{"path", folder}, {"images", images}, {"bytes", bytes}})
                << "\n";
  } else {
    context.out << fmt::format("{}: {} images, {:.1f} MB\n", folder, images,
                               static_cast<double>(bytes) / 1e6);
  }
  return kExitDone;
}

}  // namespace mayfly::cli
