#include "datasets/decoded_images.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/try_assign.hpp"
#include "datasets/jpeg.hpp"
#include "datasets/readers.hpp"
#include "datasets/record_set.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kCacheMagic = 0x3445484341434d46;  // "FMCACHE4"
constexpr std::size_t kNameBytesMax = 255;
constexpr std::size_t kClassesMax = std::size_t{1} << 16;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kLeftOutBytes = LeftOut::kNamesMax * (LeftOut::kNameBytesMax + 1);
constexpr std::size_t kFieldsBytesMax =
    kPageBytes + kLeftOutBytes + kClassesMax * (kNameBytesMax + 4);
constexpr int kSideMin = 4;
constexpr int kSideMax = 1024;

struct Header {
  Digest key;      // of the source
  Digest records;  // hash of all records
  Digest train;    // hash of the training records
  Digest test;     // hash of the test records
  std::uint32_t image_size = 0;
  std::uint64_t train_count = 0;
  std::uint64_t test_count = 0;
  LeftOut left_out;
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};
  std::vector<std::string> classes;
};

void put_digest(WireWriter& writer, const Digest& digest) {
  writer.put(digest.high);
  writer.put(digest.low);
}

Digest get_digest(WireReader& reader) {
  Digest digest;
  digest.high = reader.get<std::uint64_t>();
  digest.low = reader.get<std::uint64_t>();
  return digest;
}

// The names are padded to a fixed length, because more images may be skipped while all are decoded
// and the size of the header must be known before.
std::string packed_names(const LeftOut& left_out) {
  std::string packed;
  for (const std::string& name : left_out.names) {
    packed += name + '\0';
  }
  packed.resize(kLeftOutBytes);
  return packed;
}

LeftOut unpacked_names(std::uint64_t count, const std::string& packed) {
  LeftOut left_out;
  left_out.count = count;
  for (std::size_t begin = 0; begin < packed.size() && packed[begin] != '\0';) {
    left_out.names.emplace_back(packed.c_str() + begin);
    begin += left_out.names.back().size() + 1;
  }
  return left_out;
}

Bytes encode_fields(const Header& header) {
  WireWriter writer;
  for (const Digest* digest : {&header.key, &header.records, &header.train, &header.test}) {
    put_digest(writer, *digest);
  }
  writer.put(header.image_size);
  writer.put(header.train_count);
  writer.put(header.test_count);
  writer.put(std::uint64_t{header.left_out.count});
  writer.put_string(packed_names(header.left_out));
  for (const float field : header.mean) {
    writer.put(field);
  }
  for (const float field : header.deviation) {
    writer.put(field);
  }
  writer.put(static_cast<std::uint32_t>(header.classes.size()));
  for (const std::string& name : header.classes) {
    writer.put_string(name);
  }
  return writer.take();
}

// Magic, the fields with their length, the hash of the fields, zeros up to a whole page.
Bytes encode_header(const Header& header) {
  const Bytes fields = encode_fields(header);
  WireWriter writer;
  writer.put(kCacheMagic);
  writer.put_bytes(fields);
  put_digest(writer, digest_of(fields));
  Bytes bytes = writer.take();
  bytes.resize((bytes.size() + kPageBytes - 1) / kPageBytes * kPageBytes);
  return bytes;
}

Result<Header> decode_header(ByteSpan bytes) {
  const Error damaged{Errc::kCorrupt, "the header is damaged"};
  WireReader outer(bytes);
  if (outer.get<std::uint64_t>() != kCacheMagic) {
    return Error{Errc::kCorrupt, "damaged or of another version"};
  }
  const Bytes fields = outer.get_bytes(kFieldsBytesMax);
  if (get_digest(outer) != digest_of(fields) || outer.failed()) {
    return damaged;
  }
  Header header;
  WireReader reader(fields);
  for (Digest* digest : {&header.key, &header.records, &header.train, &header.test}) {
    *digest = get_digest(reader);
  }
  header.image_size = reader.get<std::uint32_t>();
  header.train_count = reader.get<std::uint64_t>();
  header.test_count = reader.get<std::uint64_t>();
  const auto left_out = reader.get<std::uint64_t>();
  header.left_out = unpacked_names(left_out, reader.get_string(kLeftOutBytes));
  for (float& field : header.mean) {
    field = reader.get<float>();
  }
  for (float& field : header.deviation) {
    field = reader.get<float>();
  }
  const std::size_t classes = reader.get_count(kClassesMax, sizeof(std::uint32_t));
  for (std::size_t i = 0; i < classes; ++i) {
    header.classes.push_back(reader.get_string(kNameBytesMax));
  }
  const bool plausible = header.image_size >= kSideMin && header.image_size <= kSideMax &&
                         header.train_count <= UINT32_MAX && header.test_count <= UINT32_MAX;
  return reader.complete() && plausible ? Result<Header>(std::move(header)) : damaged;
}

RecordLayout layout_of(const Header& header) {
  const bool wide = header.classes.size() > 256;
  return {.image_size = static_cast<int>(header.image_size),
          .label_bytes = wide ? 2U : 1U,
          .wide_labels = wide};
}

bool is_cifar10(const Header& header) {
  return header.classes == cifar10_class_names() && header.image_size == 32;
}

// Mean and deviation of the training pixels per channel; exact sums, so independent of any order.
void measure_channels(std::span<const std::uint8_t> train, Header& header) {
  const RecordLayout layout = layout_of(header);
  const std::size_t plane = layout.pixel_bytes() / 3;
  std::array<std::uint64_t, 3> sum{};
  std::array<std::uint64_t, 3> square{};
  for (std::size_t record = 0; record < train.size(); record += layout.record_bytes()) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const std::uint8_t* pixels = train.data() + record + layout.label_bytes + channel * plane;
      for (std::size_t i = 0; i < plane; ++i) {
        sum[channel] += pixels[i];
        square[channel] += std::uint64_t{pixels[i]} * pixels[i];
      }
    }
  }
  const double count = static_cast<double>(header.train_count * plane);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const double mean = static_cast<double>(sum[channel]) / count;
    const double variance = static_cast<double>(square[channel]) / count - mean * mean;
    header.mean[channel] = static_cast<float>(mean / 255);
    // Constant images have no scale; 1 keeps them finite.
    header.deviation[channel] =
        variance > 1e-3 ? static_cast<float>(std::sqrt(variance) / 255) : 1.0F;
  }
}

// Decodes one image after the other into records.
class BlockBuilder {
 public:
  BlockBuilder(const std::string& source, std::size_t image_count, Header start)
      : header(std::move(start)), source_(source) {
    const std::size_t bytes = image_count * layout_of(header).record_bytes();
    header_bytes_ = encode_header(header).size();
    block_.resize(header_bytes_ + bytes);
    next_ = header_bytes_;
  }

  // kCorrupt, with the image's name, if only this image is unusable; other errors end the decoding.
  Result<void> add(const EncodedImage& image) {
    TRY_ASSIGN(const ByteSpan bytes, bytes_of(image, buffer_));
    const Result<RgbImage> decoded = decoder_.decode(bytes);
    if (!decoded.ok()) {
      return Error{Errc::kCorrupt, name_of(source_, image) + ": " + decoded.error().detail};
    }
    if (std::cmp_not_equal(decoded.value().width, header.image_size) ||
        std::cmp_not_equal(decoded.value().height, header.image_size)) {
      return Error{Errc::kIo, name_of(source_, image) + " has changed while it was in use"};
    }
    append(image, decoded.value());
    return {};
  }

  Header header;

  // Writes the header, whose fields are known only now, and returns the block.
  Bytes finish(const Digest& key) {
    const RecordLayout layout = layout_of(header);
    block_.resize(next_);
    const std::size_t train_bytes = header.train_count * layout.record_bytes();
    const ByteSpan records = ByteSpan(block_).subspan(header_bytes_);
    header.key = key;
    header.records = digest_of(records);
    header.train = digest_of(records.first(train_bytes));
    header.test = digest_of(records.subspan(train_bytes));
    if (is_cifar10(header)) {
      header.mean = cifar10_format().mean;
      header.deviation = cifar10_format().deviation;
    } else {
      measure_channels({reinterpret_cast<const std::uint8_t*>(records.data()), train_bytes},
                       header);
    }
    const Bytes encoded = encode_header(header);
    ENSURE(encoded.size() == header_bytes_, "only the classes decide the length of the header");
    std::memcpy(block_.data(), encoded.data(), encoded.size());
    return std::move(block_);
  }

 private:
  void append(const EncodedImage& image, const RgbImage& decoded) {
    const auto label =
        std::lower_bound(header.classes.begin(), header.classes.end(), image.class_name);
    auto* record = reinterpret_cast<std::uint8_t*>(block_.data() + next_);
    const auto number = static_cast<std::uint16_t>(label - header.classes.begin());
    const std::size_t label_bytes = layout_of(header).label_bytes;
    std::memcpy(record, &number, label_bytes);  // little-endian: the low byte first
    record += label_bytes;
    const std::size_t plane = decoded.pixels.size() / 3;
    for (std::size_t i = 0; i < plane; ++i) {
      for (std::size_t channel = 0; channel < 3; ++channel) {
        record[channel * plane + i] = decoded.pixels[3 * i + channel];
      }
    }
    next_ += layout_of(header).record_bytes();
    (image.test ? header.test_count : header.train_count) += 1;
  }

  std::string source_;
  JpegDecoder decoder_;
  Bytes buffer_;
  Bytes block_;
  std::size_t header_bytes_ = 0;
  std::size_t next_ = 0;
};

DatasetPair pair_from(const Header& header, std::shared_ptr<const void> owner,
                      std::span<const std::uint8_t> records) {
  const RecordLayout layout = layout_of(header);
  const std::size_t train_bytes = header.train_count * layout.record_bytes();
  DatasetPair pair;
  pair.name = is_cifar10(header) ? "cifar10" : "folder";
  pair.classes = static_cast<int>(header.classes.size());
  pair.class_names = header.classes;
  pair.mean = header.mean;
  pair.deviation = header.deviation;
  pair.train = std::make_shared<RecordSet>(
      layout, std::vector<RecordChunk>{{owner, records.first(train_bytes)}});
  pair.test = std::make_shared<RecordSet>(
      layout, std::vector<RecordChunk>{{owner, records.subspan(train_bytes)}});
  pair.digest = header.train;
  pair.test_digest = header.test;
  pair.left_out = header.left_out;
  return pair;
}

}  // namespace

Result<Bytes> decode_images(const std::string& source, MeasuredImages measured, bool skip_corrupt,
                            const Digest& key, const std::function<bool()>& is_called_off) {
  ENSURE(!measured.images.empty(), "a set has images");
  Header header;
  header.classes = std::move(measured.class_names);
  header.image_size = static_cast<std::uint32_t>(measured.images.front().width);
  header.left_out = std::move(measured.left_out);
  BlockBuilder builder(source, measured.images.size(), std::move(header));
  for (EncodedImage& image : measured.images) {
    if (is_called_off && is_called_off()) {
      return called_off();
    }
    const Result<void> added = builder.add(image);
    if (!added.ok()) {
      if (added.error().code != Errc::kCorrupt || !skip_corrupt) {
        return added.error();
      }
      builder.header.left_out.add(name_in_set(image));
    }
    image.owner.reset();
  }
  if (builder.header.train_count == 0 || builder.header.test_count == 0) {
    return Error{Errc::kCorrupt, source + ": every training or every test image is corrupt"};
  }
  return builder.finish(key);
}

Result<DatasetPair> dataset_from_block(std::shared_ptr<const void> owner,
                                       std::span<const std::uint8_t> block, const Digest& key) {
  TRY_ASSIGN(const Header decoded, decode_header(std::as_bytes(block)));
  const Header& header = decoded;
  const std::size_t count = header.train_count + header.test_count;
  const std::size_t header_bytes = std::min(encode_header(header).size(), block.size());
  const std::span<const std::uint8_t> records = block.subspan(header_bytes);
  if (header.key != key) {
    return Error{Errc::kCorrupt, "made from another source"};
  }
  if (records.size() != count * layout_of(header).record_bytes() ||
      digest_of(std::as_bytes(records)) != header.records) {
    return Error{Errc::kCorrupt, "the images are torn or damaged"};
  }
  return pair_from(header, std::move(owner), records);
}

}  // namespace mayfly::datasets
