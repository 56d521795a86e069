#include "nn/model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "nn/model_builder.hpp"

namespace mayfly::nn {
namespace {

constexpr int kClassesMax = 65536;  // labels are 16 bits
constexpr int kImageSizeMax = 4096;

struct Family {
  const char* name;
  int usual_size;
  int usual_classes;
  int size_min;
  int size_multiple;  ///< so that every stride-2 layer halves an even size
  void (*describe)(Model& model, int depth);
};

constexpr Family kCifar{"CIFAR", 32, 10, 8, 4, describe_cifar_resnet};
constexpr Family kImagenet{"ImageNet", 224, 1000, 32, 32, describe_imagenet_resnet};

struct Entry {
  const char* name;
  const Family& family;
  int depth;
};

constexpr Entry kEntries[] = {{"resnet20", kCifar, 20},    {"resnet32", kCifar, 32},
                              {"resnet44", kCifar, 44},    {"resnet56", kCifar, 56},
                              {"resnet110", kCifar, 110},  {"resnet18", kImagenet, 18},
                              {"resnet34", kImagenet, 34}, {"resnet50", kImagenet, 50}};

Error unknown_model(const std::string& name) {
  const std::vector<std::string> names = model_names();
  const auto nearest =
      std::min_element(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
        return edit_distance(a, name) < edit_distance(b, name);
      });
  std::string known;
  for (const std::string& each : names) {
    known += (known.empty() ? "" : ", ") + each;
  }
  return {Errc::kInvalidInput, "unknown model \"" + name + "\"; did you mean \"" + *nearest +
                                   "\"? (known: " + known + ")"};
}

const Entry* find_entry(const std::string& name) {
  const auto* found = std::find_if(std::begin(kEntries), std::end(kEntries),
                                   [&name](const Entry& entry) { return name == entry.name; });
  return found == std::end(kEntries) ? nullptr : found;
}

Result<Model> build(const Entry& entry, int classes, int image_size) {
  const Family& family = entry.family;
  const int size = image_size == 0 ? family.usual_size : image_size;
  if (size < family.size_min || size > kImageSizeMax || size % family.size_multiple != 0) {
    return Error{Errc::kInvalidInput,
                 fmt::format("{} cannot take {}x{} images; the {} family takes multiples of {} "
                             "from {} to {}",
                             entry.name, size, size, family.name, family.size_multiple,
                             family.size_min, kImageSizeMax)};
  }
  Model model;
  model.name = entry.name;
  model.classes = classes;
  model.image_size = size;
  family.describe(model, entry.depth);
  return model;
}

}  // namespace

std::vector<const ConvSpec*> convolutions_of(const Model& model) {
  std::vector<const ConvSpec*> list{&model.stem};
  for (const BlockSpec& block : model.blocks) {
    for (const ConvSpec& conv : block.convs) {
      list.push_back(&conv);
    }
    if (block.projection.has_value()) {
      list.push_back(&*block.projection);
    }
  }
  return list;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) {
    names.emplace_back(entry.name);
  }
  return names;
}

Result<Model> make_model(const std::string& name, int classes, int image_size) {
  if (classes < 2 || classes > kClassesMax) {
    return Error{Errc::kInvalidInput,
                 fmt::format("{} classes; a model needs 2 to {}", classes, kClassesMax)};
  }
  const Entry* entry = find_entry(name);
  return entry != nullptr ? build(*entry, classes, image_size) : Result<Model>(unknown_model(name));
}

Result<Model> make_usual_model(const std::string& name, int image_size) {
  const Entry* entry = find_entry(name);
  return entry != nullptr ? build(*entry, entry->family.usual_classes, image_size)
                          : Result<Model>(unknown_model(name));
}

}  // namespace mayfly::nn
