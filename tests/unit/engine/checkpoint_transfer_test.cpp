// The messages of checkpoint transfers, and which bytes their decoders refuse.

#include "engine/transfers/checkpoint_transfer.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "nn/checkpoint.hpp"

namespace mayfly::engine {
namespace {

TransferOffer some_offer() {
  return {Step{7},
          {{nn::kManifestFile, 10, {1, 2}},
           {nn::kModelFile, 20, {3, 4}},
           {nn::kOptimizerFile, 30, {5, 6}}}};
}

TEST(CheckpointTransfer, SaysWhatItMeans) {
  TransferRequest request;
  request.offer = some_offer();
  EXPECT_EQ(decode_transfer_request(encode(request)).value().offer, some_offer());
  request.kind = TransferRequest::Kind::kQuestion;
  request.question = {Step{9}, {7, 8}, true, true, true};
  const TransferQuestion asked = decode_transfer_request(encode(request)).value().question;
  EXPECT_EQ(asked.step, Step{9});
  EXPECT_EQ(asked.digest, (Digest{7, 8}));
  EXPECT_TRUE(asked.is_foreign && asked.has_state && asked.needs_state);
  const TransferAnswer answer{TransferAnswer::Verdict::kTransfer, "why", 17, some_offer()};
  const TransferAnswer heard = decode_transfer_answer(encode(answer)).value();
  EXPECT_EQ(heard.verdict, answer.verdict);
  EXPECT_EQ(heard.text, "why");
  EXPECT_EQ(heard.first, 17U);
  EXPECT_EQ(heard.offer, some_offer());
  EXPECT_EQ(decode_transfer_receipt(encode(TransferReceipt{false, "no"})).value().text, "no");
}

TEST(CheckpointTransfer, CarriesFilesOfManyGigabytesUpToTheBoundOfAll) {
  TransferRequest request;
  request.offer = some_offer();
  request.offer.files[1].bytes = std::uint64_t{5} << 30;
  request.offer.files[2].bytes = kCheckpointFileBytesMax;
  EXPECT_EQ(decode_transfer_request(encode(request)).value().offer, request.offer);
  EXPECT_EQ(request.offer.bytes(), 10 + (std::uint64_t{5} << 30) + kCheckpointFileBytesMax);
  ++request.offer.files[2].bytes;
  EXPECT_FALSE(decode_transfer_request(encode(request)).ok());
}

TEST(CheckpointTransfer, NeverCutsFactsOff) {
  TransferRequest request;
  request.kind = TransferRequest::Kind::kFacts;
  request.facts.assign(kFactsBytesMax, 'f');
  const Bytes longest = encode(request);
  EXPECT_LE(longest.size(), kRequestBytesMax);
  EXPECT_EQ(decode_transfer_request(longest).value().facts, request.facts);
  WireWriter longer;
  longer.put(TransferRequest::Kind::kFacts);
  longer.put_string(request.facts + 'f');
  EXPECT_FALSE(decode_transfer_request(longer.take()).ok());
}

TEST(CheckpointTransfer, TakesTheFilesOfACheckpointAndNoOthers) {
  for (const char* name : {"../../etc/passwd", "model.safetensors2", ""}) {
    TransferRequest request;
    request.offer = some_offer();
    request.offer.files[1].name = name;
    EXPECT_EQ(decode_transfer_request(encode(request)).error().code, Errc::kCorrupt) << name;
  }
  TransferRequest twice;
  twice.offer = some_offer();
  twice.offer.files[1] = twice.offer.files[0];
  EXPECT_FALSE(decode_transfer_request(encode(twice)).ok());
  TransferRequest huge;
  huge.offer = some_offer();
  huge.offer.files[2].bytes = UINT64_MAX;
  EXPECT_FALSE(decode_transfer_request(encode(huge)).ok());
}

TEST(CheckpointTransfer, NoBytesMakeADecoderFail) {
  RandomStream random(CounterRandom(1).split("transfer"));
  TransferRequest request;
  request.offer = some_offer();
  const Bytes sound = encode(request);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = sound;
    for (std::uint64_t i = random.below(4); i > 0; --i) {
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
    }
    bytes.resize(random.below(bytes.size() + 1));
    (void)decode_transfer_request(bytes);
    (void)decode_transfer_answer(bytes);
    (void)decode_transfer_receipt(bytes);
  }
}

}  // namespace
}  // namespace mayfly::engine
