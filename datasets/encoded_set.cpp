#include "datasets/encoded_set.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/try_assign.hpp"
#include "datasets/jpeg.hpp"

namespace mayfly::datasets {
namespace {

// The decoder, resampler and buffers of one thread, which are reused from image to image.
struct Scratch {
  JpegDecoder decoder;
  Resampler resampler;
  Bytes buffer;
  // The number of the set for which this thread has fetched images ahead; 0 = none. Not its
  // address, which may become that of a later set.
  std::uint64_t arrived_for = 0;
  std::vector<WantedImage> arrived;
};

Scratch& scratch() {
  thread_local Scratch own;
  return own;
}

std::uint64_t next_set_number() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

// The smallest scale at which the part still has as many pixels as the network sees. Only those
// that libjpeg has vector code for: 3/8, 5/8, 6/8 and 7/8 take longer than the whole image
// (measured for 500 x 375: 1.0 ms whole, 0.8 ms for 4/8, 1.4 ms for 7/8).
int eighths_for(const ImagePart& part, int side) {
  const double shorter = std::min(part.width, part.height);
  for (const int eighths : {1, 2, 4}) {
    if (shorter * eighths >= 8.0 * side) {
      return eighths;
    }
  }
  return 8;
}

ImagePart scaled(const ImagePart& part, int eighths) {
  const double factor = eighths / 8.0;
  return {part.left * factor, part.top * factor, part.width * factor, part.height * factor};
}

Digest digest_of_samples(std::span<const EncodedImage> images,
                         const std::vector<std::string>& class_names) {
  Digester digester;
  digester.add(std::as_bytes(std::span<const char>("mayfly encoded images 1")));
  digester.add_value(static_cast<std::uint64_t>(images.size()));
  for (const std::string& name : class_names) {
    digester.add(std::as_bytes(std::span(name)));
    digester.add_value('\n');
  }
  for (const EncodedImage& image : images) {
    digester.add(std::as_bytes(std::span(image.class_name)));
    digester.add_value('/');
    digester.add(std::as_bytes(std::span(image.file)));
    digester.add_value('\n');
    digester.add_value(image.size);
    digester.add_value(image.width);
    digester.add_value(image.height);
  }
  return digester.finish();
}

}  // namespace

EncodedSet::EncodedSet(Options options, std::vector<std::string> class_names,
                       std::span<const EncodedImage> images)
    : number_(next_set_number()),
      options_(std::move(options)),
      class_names_(std::move(class_names)) {
  ENSURE(!images.empty(), "a part of a data set has images");
  test_ = images.front().test;
  owner_ = images.front().owner;
  samples_.reserve(images.size());
  for (const EncodedImage& image : images) {
    ENSURE(image.place != ImagePlace::kUnpacked && image.width > 0, "images stay where they are");
    const auto label = std::lower_bound(class_names_.begin(), class_names_.end(), image.class_name);
    names_ += image.file;
    Sample sample;
    sample.content = image.place == ImagePlace::kMapped ? image.content.data() : nullptr;
    sample.size = static_cast<std::uint32_t>(image.size);
    sample.name_end = static_cast<std::uint32_t>(names_.size());
    sample.width = static_cast<std::uint16_t>(image.width);
    sample.height = static_cast<std::uint16_t>(image.height);
    sample.label = static_cast<std::uint16_t>(label - class_names_.begin());
    samples_.push_back(sample);
  }
  if (options_.store != nullptr && samples_.front().content != nullptr) {
    tar_ = static_cast<const MappedFile*>(owner_.get());
  }
  ENSURE(names_.size() <= UINT32_MAX, "the names' places have 32 bits");
}

std::string EncodedSet::name_of_sample(std::size_t index) const {
  const Sample& sample = samples_[index];
  const std::size_t begin = index == 0 ? 0 : samples_[index - 1].name_end;
  const bool in_tar = sample.content != nullptr;
  return options_.source + (in_tar ? ": " : "/") + (test_ ? "test/" : "train/") +
         class_names_[sample.label] + '/' + names_.substr(begin, sample.name_end - begin);
}

/// Reads the sample from storage; if there is a store, its pages do not stay in the page cache.
Result<ByteSpan> EncodedSet::read_sample(std::size_t index, Bytes& buffer) const {
  const Sample& sample = samples_[index];
  if (sample.content == nullptr) {
    return read_image_file(name_of_sample(index), sample.size, buffer,
                           options_.store != nullptr ? PageCache::kDropped : PageCache::kStays);
  }
  if (tar_ != nullptr) {
    const std::byte* const begin = std::as_bytes(tar_->bytes()).data();
    return read_image_at(tar_->fd(), static_cast<std::uint64_t>(sample.content - begin),
                         sample.size, name_of_sample(index), buffer);
  }
  return ByteSpan(sample.content, sample.size);
}

void EncodedSet::fetch_ahead(const SampleStream& stream, std::uint64_t position,
                             std::size_t count) const {
  if (options_.peers == nullptr) {
    return;
  }
  Scratch& own = scratch();
  own.arrived_for = number_;
  own.arrived.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t sample = stream.at(position + i).sample;
    WantedImage wanted{.image = sample, .size = samples_[sample].size, .bytes = {}};
    // A second copy may be given up before it is used, so its bytes are copied now.
    const ImageStore::Kept kept = options_.store->kept(sample, wanted.bytes);
    const bool is_right = kept.bytes.size() == wanted.size &&
                          (wanted.bytes.empty() || digest_of(kept.bytes) == kept.digest);
    if (!is_right) {
      wanted.bytes.clear();
    }
    if (!is_right || !wanted.bytes.empty()) {
      own.arrived.push_back(std::move(wanted));
    }
  }
  options_.peers->fetch(stream, position, own.arrived);
  for (const WantedImage& image : own.arrived) {
    if (image.is_damaged) {
      log::warning(name_of_sample(image.image) +
                   " came from the store of another host with another hash; it is read from "
                   "storage. If this repeats, the memory or the network there is faulty");
    }
  }
}

/// Empty if the calling thread has not fetched the sample ahead, or if it did not arrive.
ByteSpan EncodedSet::arrived_ahead(std::size_t index) const {
  const Scratch& own = scratch();
  if (own.arrived_for != number_) {
    return {};
  }
  const auto image = std::ranges::find(own.arrived, index, &WantedImage::image);
  if (image == own.arrived.end() || image->bytes.empty()) {
    return {};
  }
  count_from_store(image->bytes.size());
  return image->bytes;
}

Result<ByteSpan> EncodedSet::bytes_of_sample(std::size_t index, Bytes& buffer) const {
  if (options_.store == nullptr) {
    return read_sample(index, buffer);
  }
  if (const ByteSpan arrived = arrived_ahead(index); !arrived.empty()) {
    return arrived;
  }
  const ImageStore::Found kept = options_.store->find(index, samples_[index].size, buffer);
  if (!kept.bytes.empty()) {
    return kept.bytes;
  }
  if (kept.is_damaged) {
    log::warning(name_of_sample(index) +
                 " has changed in the memory of this host's store (its hash is another); it is "
                 "read from storage again. If this repeats, the memory is faulty");
  }
  TRY_ASSIGN(const ByteSpan read, read_sample(index, buffer));
  if (options_.peers != nullptr && options_.peers->is_kept(index)) {
    (void)options_.store->keep_second(index, read);  // it did not arrive in time
  } else if (!options_.store->keep(index, read) && !options_.store->keeps(index) &&
             options_.peers != nullptr) {
    options_.peers->offer(index, read);
  }
  return read;
}

Result<void> EncodedSet::decode_part(std::size_t index, const ImagePart& part,
                                     std::span<std::uint8_t> pixels) const {
  const Sample& sample = samples_[index];
  Scratch& own = scratch();
  TRY_ASSIGN(const ByteSpan bytes, bytes_of_sample(index, own.buffer));
  const int eighths = eighths_for(part, options_.image_size);
  const Result<RgbImage> image = own.decoder.decode(bytes, eighths);
  if (!image.ok()) {
    return Error{Errc::kCorrupt, name_of_sample(index) + ": " + image.error().detail};
  }
  if (image.value().width != (sample.width * eighths + 7) / 8 ||
      image.value().height != (sample.height * eighths + 7) / 8) {
    return Error{Errc::kIo, name_of_sample(index) + " has changed while it was in use"};
  }
  own.resampler.scale(image.value(), scaled(part, eighths), options_.image_size, pixels);
  return {};
}

Result<void> EncodedSet::read_part(std::size_t index, const ImagePart& part,
                                   std::span<std::uint8_t> pixels) const {
  Result<void> done = decode_part(index, part, pixels);
  // Only for errors of the decoder: if a file is changing, each reader may see other bytes.
  if (!done.ok() && done.error().code == Errc::kCorrupt && options_.skip_corrupt) {
    replace(index, done.error().detail, pixels);
    return {};
  }
  return done;
}

void EncodedSet::replace(std::size_t index, const std::string& reason,
                         std::span<std::uint8_t> pixels) const {
  const std::size_t plane = pixels.size() / 3;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const auto mean = static_cast<std::uint8_t>(kImagenetMean[channel] * 255.0F + 0.5F);
    std::fill_n(pixels.begin() + static_cast<std::ptrdiff_t>(channel * plane), plane, mean);
  }
  const std::lock_guard lock(mutex_);
  if (replaced_.insert(index).second) {
    log::warning(reason + "; the mean colour is used instead");
  }
}

Result<void> EncodedSet::read(std::size_t index, std::span<std::uint8_t> pixels) const {
  const Sample& sample = samples_[index];
  return read_part(index, centre_part(sample.width, sample.height), pixels);
}

Result<Augmentation> EncodedSet::read_for_training(std::size_t index, const EpochKey& key,
                                                   std::span<std::uint8_t> pixels) const {
  const Sample& sample = samples_[index];
  const ResizedCrop draw =
      draw_resized_crop(key.seed, key.epoch, index, sample.width, sample.height);
  TRY(read_part(index, draw.part, pixels));
  Augmentation rest;
  rest.flip = draw.flip;
  return rest;
}

DatasetPair make_encoded_pair(const EncodedSet::Options& options, MeasuredImages measured) {
  const auto border = std::partition_point(measured.images.begin(), measured.images.end(),
                                           [](const EncodedImage& image) { return !image.test; });
  const std::span<const EncodedImage> train(measured.images.begin(), border);
  const std::span<const EncodedImage> test(border, measured.images.end());
  DatasetPair pair;
  pair.name = "images";
  pair.classes = static_cast<int>(measured.class_names.size());
  pair.mean = kImagenetMean;
  pair.deviation = kImagenetDeviation;
  pair.train = std::make_shared<EncodedSet>(options, measured.class_names, train);
  EncodedSet::Options without_store = options;
  without_store.store = nullptr;
  without_store.peers = nullptr;
  pair.test = std::make_shared<EncodedSet>(without_store, measured.class_names, test);
  pair.digest = digest_of_samples(train, measured.class_names);
  pair.test_digest = digest_of_samples(test, measured.class_names);
  pair.class_names = std::move(measured.class_names);
  pair.left_out = std::move(measured.left_out);
  pair.encoded = true;
  pair.peers = options.peers;
  return pair;
}

}  // namespace mayfly::datasets
