#pragma once

#include <map>
#include <string>

#include "base/bytes.hpp"

namespace mayfly::nn {

/// The files of a checkpoint, by name.
using CheckpointFiles = std::map<std::string, Bytes>;

}  // namespace mayfly::nn
