#pragma once

// Decoded images in one block of memory that is, byte for byte, also the cache file: a header of
// whole pages, the training records, the test records (RecordLayout; one label byte where the
// classes fit into it, else two).

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/result.hpp"
#include "datasets/dataset.hpp"
#include "datasets/encoded_images.hpp"

namespace mayfly::datasets {

/// Upper bound on the bytes of a decoded data set.
inline constexpr std::size_t kDecodedBytesMax = std::size_t{16} << 30;

/// Decodes all images, which have one square size from 4 to 1024. `source` is for messages. With
/// skip_corrupt, corrupt images are skipped and noted; otherwise the first one is an error that
/// names it. Each image's content is freed as soon as it is decoded. `key` identifies the source
/// (folder_key or tar_key). kAborted if `is_called_off` (empty = never) returned true.
[[nodiscard]] Result<Bytes> decode_images(const std::string& source, MeasuredImages measured,
                                          bool skip_corrupt, const Digest& key,
                                          const std::function<bool()>& is_called_off = {});

/// Makes a data set of a block. The block's hash is checked; kCorrupt if it is truncated or
/// damaged, or belongs to another key. `owner` keeps `block` alive.
[[nodiscard]] Result<DatasetPair> dataset_from_block(std::shared_ptr<const void> owner,
                                                     std::span<const std::uint8_t> block,
                                                     const Digest& key);

}  // namespace mayfly::datasets
