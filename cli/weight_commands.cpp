#include <fmt/format.h>

#include <filesystem>

#include "base/file.hpp"
#include "base/parse.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "cli/checkpoint_commands.hpp"
#include "cli/cli.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/record_json.hpp"
#include "nn/weight_file.hpp"

namespace mayfly::cli {
namespace {

namespace fs = std::filesystem;

Error unusable(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

Result<std::string> needed(const std::string& command, const ParsedArguments& arguments,
                           const std::string& name, const std::string& placeholder) {
  std::string value = arguments.option(name);
  if (value.empty()) {
    return unusable(fmt::format("{} needs --{} {}", command, name, placeholder));
  }
  return value;
}

/// Weights may be the result of hours of training, so no command here overwrites a file.
Result<void> refuse_existing(const std::string& path) {
  std::error_code failure;
  const bool is_free = !fs::exists(path, failure) ||
                       (fs::is_directory(path, failure) && fs::is_empty(path, failure));
  if (!is_free) {
    return unusable(path + " already exists; choose another --output or remove it");
  }
  return {};
}

// ---- export

struct Exported {
  std::string path;
  OpenCheckpoint checkpoint;
  std::size_t bytes = 0;
};

Result<Exported> export_checkpoint(const ParsedArguments& arguments) {
  TRY_ASSIGN(const std::string source, checkpoint_argument("export", arguments));
  TRY_ASSIGN(const std::string output, needed("export", arguments, "output", "FILE"));
  TRY(refuse_existing(output));
  TRY_ASSIGN(OpenCheckpoint checkpoint, open_checkpoint(source));
  const Bytes file = nn::encode_weight_file(checkpoint.model, checkpoint.state);
  TRY(write_file_atomic(output, ByteSpan(file)));
  return Exported{output, std::move(checkpoint), file.size()};
}

// ---- import

struct Imported {
  std::string path;
  nn::Model model;
  std::string digest;
};

/// The class count of --classes, or of the file.
Result<int> classes_for(const ParsedArguments& arguments, const nn::WeightTensors& tensors) {
  const std::string text = arguments.option("classes");
  if (text.empty()) {
    const std::optional<int> found = nn::classes_of(tensors);
    return found.has_value() ? Result<int>(*found)
                             : Result<int>(unusable("the file has no classifier (fc.weight and "
                                                    "fc.bias, or linear.weight and linear.bias)"));
  }
  const auto classes = number_in<int>(text);
  return classes ? Result<int>(*classes)
                 : unusable("--classes expects a whole number, got '" + text + "'");
}

struct Weights {
  nn::Model model;
  nn::ModelState state;
};

Result<Weights> weights_from(const ParsedArguments& arguments, const std::string& name,
                             ByteSpan file) {
  TRY_ASSIGN(const nn::WeightTensors tensors, nn::read_weight_file(file));
  TRY_ASSIGN(const int classes, classes_for(arguments, tensors));
  TRY_ASSIGN(nn::Model model, nn::make_model(name, classes));
  // Step 0 with new momentum, the initial state of a new job.
  Weights weights{std::move(model), {}};
  weights.state = nn::make_initial_state(weights.model, 0, 0, 0);
  TRY(nn::load_weights(weights.model, tensors, nn::ClassifierPolicy::kMustFit, weights.state));
  return weights;
}

Result<std::string> save(const std::string& folder, const std::string& source,
                         const Weights& weights) {
  const bool is_new = !fs::exists(folder);
  Result<std::string> saved =
      engine::save_checkpoint(folder,
                              nn::encode_checkpoint(weights.model, weights.state, 0,
                                                    {{"imported from", printable(source)}}),
                              Step{0}, 1);
  if (!saved.ok() && is_new) {
    std::error_code ignored;
    fs::remove(folder, ignored);  // only if it is empty
  }
  return saved;
}

Result<Imported> import_file(const ParsedArguments& arguments) {
  if (arguments.positionals.size() != 1) {
    return unusable(arguments.positionals.empty()
                        ? "import needs FILE, a safetensors file with weights"
                        : "import: unexpected argument '" + arguments.positionals[1] + "'");
  }
  const std::string& source = arguments.positionals.front();
  const Result<std::string> name = needed("import", arguments, "model", "NAME");
  const Result<std::string> folder = needed("import", arguments, "output", "FOLDER");
  if (!name.ok() || !folder.ok()) {
    return name.ok() ? folder.error() : name.error();
  }
  TRY(refuse_existing(folder.value()));
  TRY_ASSIGN(const Bytes file, read_file(source, engine::kCheckpointFileBytesMax));
  const Result<Weights> weights = weights_from(arguments, name.value(), file);
  if (!weights.ok()) {
    return unusable(source + ": " + weights.error().detail);
  }
  TRY_ASSIGN(std::string saved, save(folder.value(), source, weights.value()));
  return Imported{saved, weights.value().model, to_string(nn::digest_of(weights.value().state))};
}

engine::json::object json_about(const std::string& path, const nn::Model& model) {
  return {{"path", path}, {"model", model.name}, {"classes", model.classes}};
}

}  // namespace

int export_weights(const ParsedArguments& arguments, Context& context) {
  const Result<Exported> done = export_checkpoint(arguments);
  if (!done.ok()) {
    return context.complain(done.error());
  }
  const auto& [path, checkpoint, bytes] = done.value();
  const std::uint64_t step = value(checkpoint.state.committed);
  if (arguments.has("json")) {
    engine::json::object object = json_about(path, checkpoint.model);
    object["step"] = step;
    object["bytes"] = bytes;
    context.out << engine::json_text(object) << "\n";
  } else {
    context.out << fmt::format("{}: {}, {} classes, step {} of {}, {} bytes\n", path,
                               checkpoint.model.name, checkpoint.model.classes, step,
                               checkpoint.loaded.path, bytes);
  }
  return kExitDone;
}

int import_weights(const ParsedArguments& arguments, Context& context) {
  const Result<Imported> done = import_file(arguments);
  if (!done.ok()) {
    return context.complain(done.error());
  }
  const auto& [path, model, digest] = done.value();
  if (arguments.has("json")) {
    engine::json::object object = json_about(path, model);
    object["digest"] = digest;
    context.out << engine::json_text(object) << "\n";
  } else {
    context.out << fmt::format("{}: {}, {} classes, digest {}\n", path, model.name, model.classes,
                               digest);
  }
  return kExitDone;
}

}  // namespace mayfly::cli
