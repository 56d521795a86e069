#include "engine/program/program_tensor.hpp"

#include <span>

namespace mayfly::engine {

SummedTensors ProgramTensors::summed() const {
  SummedTensors all;
  for (const ProgramTensor& buffer : buffers) {
    if (buffer.is_summable()) {
      all.statistics.push_back({buffer.name, buffer.elements});
    }
  }
  for (const std::string& metric : metrics) {
    all.statistics.push_back({metric, 1});
  }
  all.statistics.push_back({"weight of a microbatch", kWeightElements});
  for (const ProgramTensor& parameter : parameters) {
    all.parameters.push_back({parameter.name, parameter.elements});
  }
  return all;
}

std::vector<std::string> ProgramTensors::part_names() const {
  std::vector<std::string> names;
  for (const auto* tensors : {&parameters, &buffers}) {
    for (const ProgramTensor& tensor : *tensors) {
      names.push_back(tensor.name);
    }
  }
  names.emplace_back("state of the optimizer");
  names.emplace_back("exponents");
  return names;
}

Digest ProgramTensors::layout_digest() const {
  Digester digester;
  for (const auto* tensors : {&parameters, &buffers}) {
    digester.add_value(tensors->size());
    for (const ProgramTensor& tensor : *tensors) {
      const std::string text = tensor.name + '\n' + tensor.type + nn::shape_text(tensor.shape);
      digester.add(std::as_bytes(std::span(text)));
    }
  }
  for (const std::string& metric : metrics) {
    digester.add(std::as_bytes(std::span(metric)));
  }
  return digester.finish();
}

Digest ProgramTensors::content_digest() const {
  Digester digester;
  for (const auto* tensors : {&parameters, &buffers}) {
    for (const ProgramTensor& tensor : *tensors) {
      digester.add(std::as_bytes(std::span(tensor.name)));
      digester.add(tensor.content());
    }
  }
  return digester.finish();
}

}  // namespace mayfly::engine
