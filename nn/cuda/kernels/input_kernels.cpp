// The network's input: images from the host, or looked up in a data set on the device.

#include "datasets/core/augmentation.hpp"
#include "nn/cuda/kernels/launch.hpp"
#include "nn/cuda/kernels/parts.hpp"

namespace mayfly::nn::cuda::MAYFLY_SIDE {
namespace {

/// Three values and the zero of the fourth channel.
MAYFLY_HOST_DEVICE inline void store_pixel(const float (&value)[3], float* to) {
  store_quad({{pattern_of(value[0]), pattern_of(value[1]), pattern_of(value[2]), 0}}, to);
}
template <typename T>
MAYFLY_HOST_DEVICE inline void store_pixel(const float (&value)[3], T* to) {
  const std::uint32_t low = narrow_pair<T>(value[0], value[1]);
  const std::uint32_t high = narrow_pair<T>(value[2], 0.0F);
#ifdef __CUDA_ARCH__
  *reinterpret_cast<uint2*>(to) = make_uint2(low, high);
#else
  std::memcpy(to, &low, sizeof low);
  std::memcpy(to + 2, &high, sizeof high);
#endif
}

/// One pixel of the output; `area` pixels per image.
template <typename T>
struct StoreImages {
  const float* from;
  T* to;
  std::uint32_t area;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t i) const {
    const std::uint64_t image = i / area;
    const float* const pixel = from + image * 3 * area + i % area;
    const float value[3] = {pixel[0], pixel[area], pixel[2 * area]};
    store_pixel(value, to + std::uint64_t{kImageChannels} * i);
  }
};

/// One pixel of the output.
template <typename T>
struct GatherImages {
  ResidentImages set;
  CounterRandom augmentation;
  bool augment;
  const SampleDraw* samples;
  T* to;

  MAYFLY_HOST_DEVICE void operator()(std::uint32_t i) const {
    const std::uint32_t area = set.width * set.width;
    const SampleDraw sample = samples[i / area];
    datasets::Augmentation draw;
    if (augment) {
      draw = datasets::draw_augmentation(augmentation, sample.epoch, sample.sample);
    }
    const int width = static_cast<int>(set.width);
    const int row = static_cast<int>(i % area) / width;
    const int column = static_cast<int>(i % area) % width;
    const int y = row + draw.crop_y - datasets::kCropPadding;
    const int x = (draw.flip ? width - 1 - column : column) + draw.crop_x - datasets::kCropPadding;
    float value[3] = {0, 0, 0};
    if (y >= 0 && y < width && x >= 0 && x < width) {
      const std::uint8_t* const pixel =
          set.pixels + sample.sample * 3 * area + static_cast<std::uint32_t>(y * width + x);
      for (int channel = 0; channel < 3; ++channel) {
        value[channel] =
            set.table[channel * 256 + pixel[static_cast<std::uint32_t>(channel) * area]];
      }
    }
    store_pixel(value, to + std::uint64_t{kImageChannels} * i);
  }
};

template <typename T>
int store_images_as(std::uint32_t images, std::uint32_t width, const float* from, void* to,
                    Stream stream) {
  return launch_each(StoreImages<T>{from, static_cast<T*>(to), width * width},
                     std::uint64_t{images} * width * width, stream);
}

int store_images(std::uint32_t images, std::uint32_t width, Dtype dtype, const float* from,
                 void* to, Stream stream) {
  if (width == 0 || width > 32768) {
    return kInvalidArguments;
  }
  return with_type_of(dtype, [&](auto value) {
    return store_images_as<decltype(value)>(images, width, from, to, stream);
  });
}

template <typename T>
int gather_images_as(const ResidentImages& set, CounterRandom augmentation, bool augment,
                     const SampleDraw* samples, std::uint32_t count, void* to, Stream stream) {
  return launch_each(GatherImages<T>{set, augmentation, augment, samples, static_cast<T*>(to)},
                     std::uint64_t{count} * set.width * set.width, stream);
}

int gather_images(const ResidentImages& set, CounterRandom augmentation, bool augment,
                  const SampleDraw* samples, std::uint32_t count, Dtype dtype, void* to,
                  Stream stream) {
  if (set.width < 4 || set.width > 32768) {
    return kInvalidArguments;
  }
  return with_type_of(dtype, [&](auto value) {
    return gather_images_as<decltype(value)>(set, augmentation, augment, samples, count, to,
                                             stream);
  });
}

}  // namespace

void add_input_kernels(Kernels& table) {
  table.store_images = store_images;
  table.gather_images = gather_images;
}

int load_input_kernels() {
  return load_each<StoreImages<float>, StoreImages<Bf16>, StoreImages<Fp16>, GatherImages<float>,
                   GatherImages<Bf16>, GatherImages<Fp16>>();
}

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
