#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/evaluate_checkpoint.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::cli {
namespace {

struct Evaluation {
  std::string path;
  std::uint64_t step = 0;
  std::string data;
  std::string isa;
  engine::Accuracy accuracy;
};

Result<Evaluation> evaluate_checkpoint(const ParsedArguments& arguments) {
  const Result<std::string> path = checkpoint_argument("eval", arguments);
  if (!path.ok()) {
    return path.error();
  }
  const Result<EvaluationMeans> means = evaluation_means(arguments, "0");
  if (!means.ok()) {
    return means.error();
  }
  const Result<OpenCheckpoint> checkpoint = open_checkpoint(path.value());
  if (!checkpoint.ok()) {
    return checkpoint.error();
  }
  const Result<datasets::DatasetPair> data = open_test_data(arguments, checkpoint.value());
  if (!data.ok()) {
    return data.error();
  }
  const Result<engine::Accuracy> accuracy =
      evaluate_on(checkpoint.value(), data.value(), means.value().threads);
  if (!accuracy.ok()) {
    return accuracy.error();
  }
  return Evaluation{checkpoint.value().loaded.path, value(checkpoint.value().state.committed),
                    data.value().name, means.value().isa, accuracy.value()};
}

}  // namespace

int evaluate(const ParsedArguments& arguments, Context& context) {
  const Result<Evaluation> done = evaluate_checkpoint(arguments);
  if (!done.ok()) {
    return context.complain(done.error());
  }
  const Evaluation& e = done.value();
  if (arguments.has("json")) {
    context.out << engine::json_text({{"path", e.path},
                                      {"step", e.step},
                                      {"data", e.data},
                                      {"samples", e.accuracy.samples},
                                      {"test_top1", e.accuracy.top1()},
                                      {"test_loss", e.accuracy.loss},
                                      {"isa", e.isa}})
                << "\n";
  } else {
    context.out << fmt::format("{}: step {}, {:.2f} % of {} test images of {}, loss {:.4f}\n",
                               e.path, e.step, e.accuracy.top1() * 100, e.accuracy.samples, e.data,
                               e.accuracy.loss);
  }
  return kExitDone;
}

}  // namespace mayfly::cli
