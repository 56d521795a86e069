#include "nn/cuda/cudnn/engine_config.hpp"

#include <algorithm>

namespace mayfly::nn::cuda::cudnn {
namespace {

/// Reads `count` descriptors of `type` out of another one.
Result<std::vector<Descriptor>> parts_of(const Descriptor& whole, cudnnBackendAttributeName_t name,
                                         cudnnBackendDescriptorType_t type, std::int64_t count) {
  std::vector<Descriptor> parts;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i) {
    Result<Descriptor> part = Descriptor::create(type);
    if (!part.ok()) {
      return std::move(part).error();
    }
    handles.push_back(part.value().get());
    parts.push_back(std::move(part).value());
  }
  std::int64_t found = 0;
  Result<void> read =
      check(cudnnBackendGetAttribute(whole.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                     &found, handles.data()),
            "reading what was found");
  if (!read.ok()) {
    return std::move(read).error();
  }
  parts.resize(static_cast<std::size_t>(std::min(found, count)));
  return parts;
}

const char* objection(cudnnBackendNumericalNote_t note, Dtype dtype) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return "it is not deterministic";
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return "it does not sum in fp32";
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      return dtype == Dtype::kFp32 ? "it multiplies fp32 as TF32" : nullptr;
    default: return nullptr;
  }
}

/// The engine that a configuration sets the knobs of.
Result<Descriptor> engine_of(const Descriptor& configuration) {
  auto engines =
      parts_of(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  if (!engines.ok()) {
    return std::move(engines).error();
  }
  if (engines.value().empty()) {
    return Error{Errc::kUnsupported, "cuDNN: a configuration without an engine"};
  }
  return std::move(engines.value().front());
}

Result<Descriptor> knob_choice(std::int32_t type, std::int64_t setting) {
  return Builder(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
      .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(type))
      .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, setting)
      .finalise();
}

}  // namespace

Result<std::vector<Descriptor>> offered_for(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                            const PlanningTarget& target) {
  Builder builder(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  builder.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  target.describe(builder, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  Result<Descriptor> search = builder.finalise();
  if (!search.ok()) {
    return std::move(search).error();
  }
  std::int64_t count = 0;
  Result<void> counted =
      check(cudnnBackendGetAttribute(search.value().get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
            "counting engines");
  if (!counted.ok()) {
    return std::move(counted).error();
  }
  return parts_of(search.value(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                  count);
}

Result<Descriptor> configured(const Descriptor& graph, const EngineName& name,
                              const PlanningTarget& target) {
  Builder builder(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  builder.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, name.index);
  target.describe(builder, CUDNN_ATTR_ENGINE_DEVICEPROP);
  const Result<Descriptor> engine = builder.finalise();
  if (!engine.ok()) {
    return engine.error();
  }
  std::vector<Descriptor> choices;
  for (const auto& [type, setting] : name.knobs) {
    Result<Descriptor> choice = knob_choice(type, setting);
    if (!choice.ok()) {
      return choice;
    }
    choices.push_back(std::move(choice).value());
  }
  Builder configuration(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  configuration.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine.value());
  if (!choices.empty()) {
    configuration.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, choices);
  }
  return configuration.finalise();
}

Result<const char*> objection_to(const Descriptor& configuration, Dtype dtype) {
  const Result<Descriptor> engine = engine_of(configuration);
  if (!engine.ok()) {
    return engine.error();
  }
  const auto numerical = values_of<cudnnBackendNumericalNote_t>(
      engine.value(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  if (!numerical.ok()) {
    return numerical.error();
  }
  for (const cudnnBackendNumericalNote_t note : numerical.value()) {
    if (const char* why = objection(note, dtype); why != nullptr) {
      return why;
    }
  }
  const auto behaviour = values_of<cudnnBackendBehaviorNote_t>(
      engine.value(), CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  if (!behaviour.ok()) {
    return behaviour.error();
  }
  const bool compiled =
      std::ranges::count(behaviour.value(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != 0;
  return compiled ? "it is compiled at run time" : nullptr;
}

Result<EngineName> name_of(const Descriptor& configuration) {
  const Result<Descriptor> engine = engine_of(configuration);
  if (!engine.ok()) {
    return engine.error();
  }
  const auto index = values_of<std::int64_t>(engine.value(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1);
  if (!index.ok()) {
    return index.error();
  }
  EngineName name{.index = index.value().at(0), .knobs = {}};
  const auto knobs = parts_of(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                              CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS);
  if (!knobs.ok()) {
    return knobs.error();
  }
  for (const Descriptor& knob : knobs.value()) {
    const auto type = values_of<cudnnBackendKnobType_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 1);
    const auto setting = values_of<std::int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 1);
    if (!type.ok() || !setting.ok()) {
      return type.ok() ? setting.error() : type.error();
    }
    name.knobs.emplace_back(static_cast<std::int32_t>(type.value().at(0)), setting.value().at(0));
  }
  return name;
}

}  // namespace mayfly::nn::cuda::cudnn
