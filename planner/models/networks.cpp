#include "planner/models/networks.hpp"

#include <cmath>

#include "base/statistics.hpp"
#include "planner/fit.hpp"

namespace mayfly::planner {
namespace {

using Size = std::optional<double> Network::*;

void fill(std::optional<double>& target, const std::optional<double>& source) {
  if (!target) {
    target = source;
  }
}

/// The `wanted` size of the network from its `given` size: wanted = a given^b, fitted over the
/// networks that have both, of its family if it has two of them.
std::optional<double> inferred(const std::map<std::string, Network>& known, const Network& network,
                               Size given, Size wanted) {
  if (!(network.*given)) {
    return std::nullopt;
  }
  for (const bool is_family : {true, false}) {
    Numbers xs, ys;
    for (const auto& [name, other] : known) {
      const bool has_both = (other.*given) && (other.*wanted);
      if (has_both && *(other.*given) > 0 && *(other.*wanted) > 0 &&
          (!is_family || other.family == network.family)) {
        xs.push_back(std::log(*(other.*given)));
        ys.push_back(std::log(*(other.*wanted)));
      }
    }
    if (ys.size() < 2) {
      continue;
    }
    const double x_mean = mean_of(xs);
    const double y_mean = mean_of(ys);
    double xx = 0, xy = 0;
    for (std::size_t i = 0; i < xs.size(); ++i) {
      xx += (xs[i] - x_mean) * (xs[i] - x_mean);
      xy += (xs[i] - x_mean) * (ys[i] - y_mean);
    }
    const double slope = xx > 0 ? xy / xx : 0;
    return std::exp(y_mean + slope * (std::log(*(network.*given)) - x_mean));
  }
  return std::nullopt;
}

}  // namespace

Networks::Networks(const Calibration& calibration) {
  const auto add = [this](const std::string& model, const Network& part) {
    Network& network = known_[model];
    network.model = model;
    network.family = network.family.empty() ? part.family : network.family;
    for (const Size size : {&Network::gflops, &Network::params, &Network::tensors,
                            &Network::weights_mb, &Network::meta_mb}) {
      fill(network.*size, part.*size);
    }
  };
  for (const StepTimeRow& row : calibration.step_times) {
    add(row.model, {row.model, row.family, row.gflops, row.params, row.tensors, {}, {}});
  }
  for (const CheckpointRow& row : calibration.checkpoints) {
    add(row.model, {row.model, row.family, {}, {}, row.tensors, row.weights_mb, row.meta_mb});
  }
}

Network Networks::completed(Network network) const {
  if (const auto found = known_.find(network.model); found != known_.end()) {
    network.family = network.family.empty() ? found->second.family : network.family;
    for (const Size size : {&Network::gflops, &Network::params, &Network::tensors,
                            &Network::weights_mb, &Network::meta_mb}) {
      fill(network.*size, found->second.*size);
    }
  }
  constexpr std::pair<Size, Size> kInferences[] = {
      {&Network::weights_mb, &Network::params}, {&Network::gflops, &Network::params},
      {&Network::params, &Network::gflops},     {&Network::params, &Network::weights_mb},
      {&Network::tensors, &Network::meta_mb},   {&Network::meta_mb, &Network::tensors},
      {&Network::params, &Network::tensors},    {&Network::tensors, &Network::meta_mb}};
  for (const auto& [given, wanted] : kInferences) {
    if (!(network.*wanted)) {
      network.*wanted = inferred(known_, network, given, wanted);
    }
  }
  return network;
}

}  // namespace mayfly::planner
