#pragma once

#include "reel/core/ragged.h"
#include "reel/nn/module.h"

namespace reel::nn {

struct EmbeddingOptions {
  std::int64_t rows = 0;   // how many things there are, at least 1
  std::int64_t width = 0;  // of each one's vector, at least 1
};

/// A learnt vector for each of `rows` things: index [...] (i32 or i64) gives [..., width]; a Ragged per row. Starts as
/// PyTorch's: standard normal.
class REEL_API Embedding : public Module {
 public:
  using Options = EmbeddingOptions;

  /// Throw Error for sizes below 1.
  explicit Embedding(EmbeddingOptions options, SourceLocation where = SourceLocation::current());
  Embedding(Module* parent, std::string name, EmbeddingOptions options,
            SourceLocation where = SourceLocation::current());

  Tensor operator()(const Tensor& index, SourceLocation where = SourceLocation::current()) const;
  Ragged operator()(const Ragged& index, SourceLocation where = SourceLocation::current()) const;

  const Parameter& weight() const { return weight_; }  // [rows, width]

 private:
  void build(EmbeddingOptions options, SourceLocation where);

  Parameter weight_;
};

}  // namespace reel::nn
