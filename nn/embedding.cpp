#include "reel/nn/embedding.h"

#include <utility>

#include "reel/nn/initialize.h"
#include "reel/nn/layer.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"

namespace reel::nn {

namespace {

constexpr const char* kKind = "Embedding";

EmbeddingOptions checked(EmbeddingOptions options, SourceLocation where) {
  detail::require_size(kKind, "rows", options.rows, where);
  detail::require_size(kKind, "width", options.width, where);
  return options;
}

}  // namespace

Embedding::Embedding(EmbeddingOptions options, SourceLocation where) : Module(kKind) {
  build(checked(options, where), where);
}

// What is wrong is said before anything is registered.
Embedding::Embedding(Module* parent, std::string name, EmbeddingOptions options, SourceLocation where)
    : Module(parent, (checked(options, where), std::move(name)), kKind, where) {
  build(options, where);
}

void Embedding::build(EmbeddingOptions options, SourceLocation where) {
  reel::detail::now_running(kKind, where);
  weight_ = parameter("weight", zeros({options.rows, options.width}), where);
  init::normal(weight_, 0, 1, {}, where);
}

Tensor Embedding::operator()(const Tensor& index, SourceLocation where) const {
  return embedding(weight_, index, where);
}

Ragged Embedding::operator()(const Ragged& index, SourceLocation where) const {
  return embedding(weight_, index, where);
}

}  // namespace reel::nn
