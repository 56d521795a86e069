#include "nn/cuda/step_plan.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/check.hpp"

namespace mayfly::nn::cuda {
namespace {

/// The tensors of a step plan that is being made. A tensor lives from the first to the last
/// operation that names it, or, if it is resident, as long as the engine.
class TensorList {
 public:
  TensorId add(std::string name, std::size_t bytes);
  TensorId add_resident(std::string name, std::size_t bytes);
  /// Records that operation `now` uses the tensor; not before the last recorded one. Does nothing
  /// for kNoTensor.
  void note_use(TensorId id, std::size_t now);
  /// Gives every tensor its place in `memory`; `end` is the number of operations. Every tensor was
  /// used.
  void place(std::size_t end, MemoryPlan& memory);

 private:
  struct Tensor {
    std::string name;
    std::size_t bytes = 0;
    bool resident = false;
    std::optional<Lifetime> use;
  };

  std::vector<Tensor> tensors_;
};

TensorId TensorList::add(std::string name, std::size_t bytes) {
  tensors_.push_back({std::move(name), bytes, false, {}});
  return static_cast<TensorId>(tensors_.size() - 1);
}

TensorId TensorList::add_resident(std::string name, std::size_t bytes) {
  const TensorId id = add(std::move(name), bytes);
  tensors_.back().resident = true;
  return id;
}

void TensorList::note_use(TensorId id, std::size_t now) {
  if (id != kNoTensor) {
    const int at = static_cast<int>(now);
    std::optional<Lifetime>& use = tensors_[static_cast<std::size_t>(id)].use;
    use = {use.has_value() ? use->first : at, at};
  }
}

void TensorList::place(std::size_t end, MemoryPlan& memory) {
  for (Tensor& tensor : tensors_) {
    ENSURE(tensor.resident || tensor.use.has_value(), "every tensor has a user");
    memory.add(std::move(tensor.name), tensor.bytes,
               tensor.resident ? Lifetime{0, static_cast<int>(end)} : *tensor.use);
  }
  memory.place();
}

/// Sets layers, filters and classifier of `plan`; returns the names of the layers.
std::vector<std::string> describe_layers(const Model& model, std::uint32_t microbatch,
                                         StepPlan& plan) {
  const auto parameter = [&](std::size_t index) { return model.parameters[index].offset; };
  std::vector<std::string> names;
  std::size_t packed_elements = 0;
  for (const ConvSpec* spec : convolutions_of(model)) {
    Layer layer;
    layer.conv = ConvShape::of(*spec, microbatch);
    layer.out = {microbatch, static_cast<std::uint32_t>(spec->output_size()),
                 static_cast<std::uint32_t>(spec->out_channels)};
    layer.weight = parameter(spec->weight);
    layer.scale = parameter(spec->weight + 1);
    layer.shift = parameter(spec->weight + 2);
    layer.mean = model.statistics[spec->running_mean].offset;
    layer.variance = model.statistics[spec->running_mean + 1].offset;
    plan.filters.push_back({.offset = layer.weight,
                            .packed_offset = packed_elements,
                            .out_channels = static_cast<std::uint32_t>(spec->out_channels),
                            .in_channels = static_cast<std::uint32_t>(spec->in_channels),
                            .packed_channels = static_cast<std::uint32_t>(layer.conv.in_channels),
                            .kernel = static_cast<std::uint32_t>(spec->kernel)});
    packed_elements += layer.conv.filter_elements();
    const std::string& weight = model.parameters[spec->weight].name;
    names.push_back(weight.substr(0, weight.rfind('.')));
    plan.layers.push_back(layer);
  }
  plan.filter_blocks = number_filter_blocks(plan.filters);
  // No network ends with a projection, so the last layer is that before the classifier.
  const ActivationShape& last = plan.layers.back().out;
  plan.classifier = {microbatch, last.width, last.channels,
                     static_cast<std::uint32_t>(model.classes)};
  plan.classifier_weight = parameter(model.classifier_weight);
  plan.classifier_bias = parameter(model.classifier_weight + 1);
  return names;
}

/// A layer between forward and backward.
struct Unit {
  std::size_t layer = 0;
  TensorId input = kNoTensor;
  TensorId raw = kNoTensor;
  TensorId factors = kNoTensor;
  TensorId mask = kNoTensor;  ///< kNoTensor: none is needed
};

struct Block {
  TensorId input = kNoTensor;
  ActivationShape input_shape;
  std::vector<Unit> units;
  std::optional<Unit> projection;
  bool downsample = false;
};

/// The gradient of a tensor that two branches read.
struct BranchGradients {
  TensorId main = kNoTensor;
  TensorId addend = kNoTensor;  ///< kNoTensor: one branch only
};

class StepPlanner {
 public:
  StepPlanner(const Model& model, std::uint32_t microbatch, const StepPlanOptions& options)
      : model_(model), microbatch_(microbatch), options_(options) {
    plan_.dtype = options.dtype;
    plan_.set = options.set;
  }

  StepPlan make() {
    names_ = describe_layers(model_, microbatch_, plan_);
    add_residents();
    plan_.load.first = time();
    push(PackFilters{});
    plan_.load.end = time();
    training_ = true;
    segment_first_ = time();
    forward();
    backward();
    training_ = false;
    plan_.evaluation.first = time();
    forward();
    plan_.evaluation.end = time();
    tensors_.place(time(), plan_.memory);
    return std::move(plan_);
  }

 private:
  // Tensors
  std::size_t time() const { return plan_.operations.size(); }

  TensorId add_activation(const std::string& name, const ActivationShape& shape) {
    return tensors_.add(name,
                        static_cast<std::size_t>(shape.elements()) * bytes_of(options_.dtype));
  }

  TensorId add_sums(std::size_t layer) {
    return tensors_.add(names_[layer] + " sums", norm_sum_bytes(plan_.layers[layer].out));
  }

  /// A tensor that is written from outside before the next operation.
  TensorId add_input(std::string name, std::size_t bytes) {
    const TensorId id = tensors_.add(std::move(name), bytes);
    tensors_.note_use(id, time());
    return id;
  }

  void push(const Operation& operation) {
    std::visit(
        [this](const auto& each) {
          for (const TensorId id : each.tensors()) {
            tensors_.note_use(id, time());
          }
        },
        operation);
    plan_.operations.push_back(operation);
  }

  void add_residents() {
    std::size_t packed_bytes = 0;
    for (const Layer& layer : plan_.layers) {
      packed_bytes += layer.conv.filter_elements() * bytes_of(options_.dtype);
    }
    const std::size_t statistic_bytes = model_.statistic_count * sizeof(float);
    ResidentTensors& r = plan_.resident;
    r.parameters = tensors_.add_resident("parameters", model_.parameter_count * sizeof(float));
    r.running_statistics = tensors_.add_resident("running statistics", statistic_bytes);
    r.gradient = tensors_.add_resident("gradient", model_.parameter_count * sizeof(float));
    if (options_.keeps_state) {
      r.momentum = tensors_.add_resident("momentum", model_.parameter_count * sizeof(float));
    }
    r.batch_statistics = tensors_.add_resident("batch statistics", statistic_bytes);
    r.filters = tensors_.add_resident("packed filters", packed_bytes);
    r.filter_gradients = tensors_.add_resident("packed filter gradients", packed_bytes);
    r.filter_table = tensors_.add_resident("filter table", plan_.filters.size() * sizeof(Filter));
    r.loss_input = tensors_.add_resident("loss input", sizeof(LossInput));
    r.loss_output = tensors_.add_resident("loss output", sizeof(LossOutput));
    const auto side = static_cast<std::size_t>(model_.image_size);
    if (plan_.set.has_value()) {
      r.set_pixels = tensors_.add_resident("training set", plan_.set->samples * 3 * side * side);
      r.set_table = tensors_.add_resident("normalised values", sizeof(datasets::Normaliser::Table));
    } else {
      r.next_images =
          tensors_.add_resident("next images", microbatch_ * side * side * 3 * sizeof(float));
    }
  }

  // Forward
  void convolve(Convolve what) {
    const std::size_t bytes =
        options_.workspace_bytes
            ? options_.workspace_bytes(plan_.layers[what.layer].conv, what.pass)
            : 0;
    if (bytes > 0) {
      what.workspace = tensors_.add(
          fmt::format("{} {} scratch", names_[what.layer], to_string(what.pass)), bytes);
    }
    push(what);
  }

  Unit begin_unit(std::size_t layer, TensorId input) {
    const ActivationShape& shape = plan_.layers[layer].out;
    Unit unit{.layer = layer, .input = input};
    unit.raw = add_activation(names_[layer] + " raw", shape);
    unit.factors = tensors_.add(names_[layer] + " factors", norm_factor_bytes(shape.channels));
    convolve({layer, ConvPass::kForward, input, unit.raw});
    if (training_) {
      push(MeasureNorm{layer, unit.raw, add_sums(layer), unit.factors});
    } else {
      push(UseRunningNorm{layer, unit.factors});
    }
    return unit;
  }

  /// Norm, the shortcut if there is one, and ReLU; returns the output.
  TensorId finish_unit(Unit& unit, TensorId residual = kNoTensor,
                       TensorId residual_factors = kNoTensor) {
    const ActivationShape& shape = plan_.layers[unit.layer].out;
    const TensorId out = add_activation(names_[unit.layer] + " out", shape);
    if (training_) {
      unit.mask = tensors_.add(names_[unit.layer] + " mask", mask_bytes(shape));
    }
    push(ApplyNorm{unit.layer, unit.raw, unit.factors, residual, residual_factors, out, unit.mask});
    return out;
  }

  TensorId forward_stem(TensorId images) {
    stem_ = begin_unit(0, images);
    if (!model_.stem_pool) {
      return finish_unit(stem_);
    }
    const ActivationShape& from = plan_.layers[0].out;
    const ActivationShape to{from.images, (from.width + 1) / 2, from.channels};
    const TensorId out = add_activation("pooled", to);
    pool_places_ = tensors_.add("pool places", static_cast<std::size_t>(to.elements()));
    pooled_elements_ = to.elements();
    push(MaxPool{from, stem_.raw, stem_.factors, out, pool_places_});
    return out;
  }

  TensorId forward_block(const BlockSpec& spec, std::size_t first_layer, TensorId input) {
    Block block;
    block.input = input;
    const ConvShape& first = plan_.layers[first_layer].conv;
    block.input_shape = {microbatch_, static_cast<std::uint32_t>(first.input_size),
                         static_cast<std::uint32_t>(first.in_channels)};
    block.downsample = spec.downsample;
    TensorId x = input;
    for (std::size_t i = 0; i < spec.convs.size(); ++i) {
      block.units.push_back(begin_unit(first_layer + i, x));
      if (i + 1 < spec.convs.size()) {
        x = finish_unit(block.units.back());
      }
    }
    TensorId residual = input;
    TensorId residual_factors = kNoTensor;
    if (spec.projection.has_value()) {
      block.projection = begin_unit(first_layer + spec.convs.size(), input);
      residual = block.projection->raw;
      residual_factors = block.projection->factors;
    } else if (spec.downsample) {
      residual = add_activation(names_[first_layer] + " shortcut",
                                plan_.layers[block.units.back().layer].out);
      push(Downsample{block.input_shape, input, residual});
    }
    const TensorId out = finish_unit(block.units.back(), residual, residual_factors);
    blocks_.push_back(std::move(block));
    return out;
  }

  /// The images in the network's layout: from the host or, in training, from a set on the device.
  TensorId forward_input() {
    ResidentTensors& r = plan_.resident;
    const auto side = static_cast<std::size_t>(model_.image_size);
    const std::size_t pixels = microbatch_ * side * side;
    (training_ ? r.train_labels : r.evaluate_labels) =
        add_input("labels", microbatch_ * sizeof(std::uint16_t));
    const bool looked_up = training_ && plan_.set.has_value();
    const TensorId given = looked_up ? add_input("draws", microbatch_ * sizeof(SampleDraw))
                                     : add_input("loaded images", pixels * 3 * sizeof(float));
    const TensorId images =
        tensors_.add("images", pixels * kImageChannels * bytes_of(options_.dtype));
    if (looked_up) {
      r.train_draws = given;
      push(GatherImages{given, r.set_pixels, r.set_table, images});
    } else {
      (training_ ? r.train_images : r.evaluate_images) = given;
      push(StoreImages{given, images});
    }
    return images;
  }

  void forward() {
    blocks_.clear();
    TensorId x = forward_stem(forward_input());
    std::size_t layer = 1;
    for (const BlockSpec& spec : model_.blocks) {
      x = forward_block(spec, layer, x);
      layer += spec.convs.size() + (spec.projection.has_value() ? 1 : 0);
    }
    classifier_memory_ = tensors_.add("classifier", classifier_bytes(plan_.classifier));
    push(Classify{x, classifier_memory_,
                  training_ ? plan_.resident.train_labels : plan_.resident.evaluate_labels});
  }

  // Backward
  void sum_gradient(const Unit& unit, const BranchGradients& gradient, TensorId mask,
                    TensorId masked) {
    push(SumNormGradient{unit.layer, gradient.main, gradient.addend, mask, unit.raw, masked,
                         add_sums(unit.layer), unit.factors});
  }

  /// Plans the weights' gradient, and ends the segment if it has enough gradients.
  void weight_gradient(const Unit& unit) {
    convolve({unit.layer, ConvPass::kWeightGradient, unit.input, unit.raw});
    const std::size_t ready = plan_.layers[unit.layer].weight;
    if (unit.layer != 0 && ready_from_ - ready < options_.segment_elements) {
      return;
    }
    push(UnpackFilterGradients{unit.layer, packed_end_});
    const std::size_t end = time();
    plan_.training.push_back({{segment_first_, end}, ready});
    segment_first_ = end;
    packed_end_ = unit.layer;
    ready_from_ = ready;
  }

  TensorId input_gradient(const Unit& unit) {
    const ConvShape& conv = plan_.layers[unit.layer].conv;
    const TensorId gradient = tensors_.add(names_[unit.layer] + " input gradient",
                                           conv.input_elements() * bytes_of(options_.dtype));
    convolve({unit.layer, ConvPass::kInputGradient, gradient, unit.raw});
    return gradient;
  }

  /// The shortcut's part of the gradient of the block's input; `joint` is the gradient of the sum.
  TensorId backward_shortcut(const Block& block, TensorId joint) {
    if (block.projection.has_value()) {
      const Unit& unit = *block.projection;
      sum_gradient(unit, {joint}, kNoTensor, kNoTensor);
      push(ApplyNormGradient{unit.layer, joint, kNoTensor, unit.raw, unit.factors});
      weight_gradient(unit);
      return input_gradient(unit);
    }
    if (block.downsample) {
      const TensorId gradient = add_activation(
          names_[block.units.front().layer] + " shortcut gradient", block.input_shape);
      push(DownsampleGradient{block.input_shape, joint, gradient});
      return gradient;
    }
    return joint;
  }

  BranchGradients backward_block(Block& block, const BranchGradients& out) {
    const Unit& last = block.units.back();
    sum_gradient(last, out, last.mask, out.main);
    const TensorId shortcut = backward_shortcut(block, out.main);
    TensorId gradient = out.main;
    for (std::size_t i = block.units.size(); i-- > 0;) {
      const Unit& unit = block.units[i];
      const bool is_last = i + 1 == block.units.size();
      if (!is_last) {
        sum_gradient(unit, {gradient}, unit.mask, kNoTensor);
      }
      push(ApplyNormGradient{unit.layer, gradient, is_last ? kNoTensor : unit.mask, unit.raw,
                             unit.factors});
      weight_gradient(unit);
      gradient = input_gradient(unit);
    }
    return {gradient, shortcut};
  }

  void backward_stem(const BranchGradients& out) {
    TensorId gradient = out.main;
    if (model_.stem_pool) {
      if (out.addend != kNoTensor) {
        push(AddGradient{pooled_elements_, out.main, out.addend});
      }
      const ActivationShape& from = plan_.layers[0].out;
      gradient = add_activation("pool gradient", from);
      push(MaxPoolGradient{from, out.main, pool_places_, gradient});
      sum_gradient(stem_, {gradient}, kNoTensor, kNoTensor);
    } else {
      sum_gradient(stem_, out, stem_.mask, gradient);
    }
    push(ApplyNormGradient{0, gradient, kNoTensor, stem_.raw, stem_.factors});
    weight_gradient(stem_);
  }

  void backward() {
    ready_from_ = model_.parameter_count;
    packed_end_ = plan_.layers.size();
    BranchGradients gradient{
        .main = add_activation("classifier gradient", plan_.classifier.activations())};
    push(ClassifyGradient{classifier_memory_, gradient.main});
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      gradient = backward_block(blocks_[i], gradient);
    }
    backward_stem(gradient);
  }

  const Model& model_;
  std::uint32_t microbatch_;
  const StepPlanOptions& options_;
  StepPlan plan_;
  TensorList tensors_;
  std::vector<std::string> names_;  ///< of the layers

  // For the pass that is being planned.
  bool training_ = true;
  Unit stem_;
  std::vector<Block> blocks_;
  TensorId pool_places_ = kNoTensor;
  std::uint64_t pooled_elements_ = 0;
  TensorId classifier_memory_ = kNoTensor;

  // For the segment that is being planned.
  std::size_t segment_first_ = 0;
  std::size_t packed_end_ = 0;  ///< layers from here on are unpacked
  std::size_t ready_from_ = 0;
};

}  // namespace

StepPlan make_step_plan(const Model& model, std::uint32_t microbatch,
                        const StepPlanOptions& options) {
  return StepPlanner(model, microbatch, options).make();
}

}  // namespace mayfly::nn::cuda
