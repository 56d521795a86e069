#include "elastic/net/job_token.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.hpp"
#include "elastic/net/handshake.hpp"

namespace mayfly::elastic {
namespace {

std::string scratch_path() {
  return std::filesystem::temp_directory_path() / ("mayfly_token_" + std::to_string(::getpid()));
}

Hello hello_for(ByteSpan token, ByteSpan challenge_nonce, Role role) {
  Hello hello;
  hello.role = role;
  hello.nonce = make_nonce();
  hello.proof = make_proof(token, challenge_nonce, hello.nonce, role);
  return hello;
}

TEST(JobToken, TokensDiffer) {
  EXPECT_EQ(make_token().size(), kTokenBytes);
  EXPECT_NE(make_token(), make_token());
  EXPECT_FALSE(is_encrypted(make_token()));
  EXPECT_TRUE(is_encrypted(make_token(true)));
  EXPECT_NE(make_nonce(), make_nonce());
}

// The proof of bytes 0..63 (two nonces) and 2 (the role) under an all-0x0b key, computed with
// Python's hmac module.
TEST(JobToken, TheProofIsPlainHmacSha256) {
  Bytes challenge;
  Bytes own;
  for (int i = 0; i < 32; ++i) {
    challenge.push_back(static_cast<std::byte>(i));
    own.push_back(static_cast<std::byte>(i + 32));
  }
  const Bytes token(kTokenBytes, std::byte{0x0b});
  EXPECT_EQ(to_hex(make_proof(token, challenge, own, Role::kOperator)),
            "0d2e28c6dcefff75d4a6041102e2c547cc354384872c65eaef69ec10c5679603");
}

TEST(JobToken, TheRightTokenIsAccepted) {
  const Bytes token = make_token();
  const Bytes nonce = make_nonce();
  EXPECT_TRUE(proof_holds(token, nonce, hello_for(token, nonce, Role::kWorker)));
}

TEST(JobToken, AnotherTokenChallengeNonceOrRoleIsRefused) {
  const Bytes token = make_token();
  const Bytes nonce = make_nonce();
  const Hello good = hello_for(token, nonce, Role::kSentinel);
  EXPECT_FALSE(proof_holds(make_token(), nonce, good));
  EXPECT_FALSE(proof_holds(token, make_nonce(), good));
  Hello changed = good;
  changed.nonce = make_nonce();
  EXPECT_FALSE(proof_holds(token, nonce, changed));
  changed = good;
  changed.role = Role::kOperator;
  EXPECT_FALSE(proof_holds(token, nonce, changed));
}

TEST(JobToken, AProofOrNonceOfTheWrongSizeIsRefused) {
  const Bytes token = make_token();
  const Bytes nonce = make_nonce();
  Hello hello = hello_for(token, nonce, Role::kWorker);
  hello.proof.pop_back();
  EXPECT_FALSE(proof_holds(token, nonce, hello));
  hello = hello_for(token, nonce, Role::kWorker);
  hello.nonce.clear();
  EXPECT_FALSE(proof_holds(token, nonce, hello));
}

TEST(JobToken, TheReasonOfARefusalNamesTokenOrVersion) {
  const Bytes token = make_token();
  const Bytes nonce = make_nonce();
  Hello hello = hello_for(token, nonce, Role::kWorker);
  EXPECT_FALSE(reason_to_refuse(hello, token, nonce));
  EXPECT_EQ(reason_to_refuse(hello, make_token(), nonce), "wrong token");
  hello.protocol = kProtocolVersion + 1;
  EXPECT_NE(reason_to_refuse(hello, token, nonce)->find("protocol version"), std::string::npos);
}

TEST(JobToken, ATokenFileIsReadBackAndPrivate) {
  const std::string path = scratch_path();
  const Bytes token = make_token();
  ASSERT_TRUE(write_token_file(path, make_token()).ok());
  ASSERT_TRUE(write_token_file(path, token).ok());
  EXPECT_EQ(read_token_file(path).value(), token);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  std::filesystem::remove(path);
}

TEST(JobToken, AFileThatIsOpenToOthersIsRefusedWithTheRemedy) {
  const std::string path = scratch_path();
  ASSERT_TRUE(write_token_file(path, make_token()).ok());
  for (const mode_t open : {0644, 0640, 0620, 0604, 0602, 0666, 0777}) {
    ASSERT_EQ(::chmod(path.c_str(), open), 0);
    const Result<Bytes> token = read_token_file(path);
    ASSERT_FALSE(token.ok()) << std::oct << open;
    EXPECT_EQ(token.error().code, Errc::kInvalidInput);
    EXPECT_NE(token.error().detail.find("chmod 600 " + path), std::string::npos);
  }
  for (const mode_t closed : {0600, 0400, 0700}) {
    ASSERT_EQ(::chmod(path.c_str(), closed), 0);
    EXPECT_TRUE(read_token_file(path).ok()) << std::oct << closed;
  }
  std::filesystem::remove(path);
}

TEST(JobToken, AFileThatIsNoTokenIsCorrupt) {
  const std::string path = scratch_path();
  const std::string good(64, 'a');
  for (const std::string& text :
       {std::string(), good.substr(1), good + "a", "g" + good.substr(1)}) {
    ASSERT_TRUE(write_file_atomic(path, std::string_view(text)).ok());
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    EXPECT_EQ(read_token_file(path).error().code, Errc::kCorrupt) << text;
  }
  std::filesystem::remove(path);
  EXPECT_EQ(read_token_file(path).error().code, Errc::kNotFound);
}

}  // namespace
}  // namespace mayfly::elastic
