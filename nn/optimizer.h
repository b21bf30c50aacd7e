#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reel/core/ops.h"
#include "reel/core/parameter.h"
#include "reel/nn/named_tensor.h"
#include "reel/nn/schedule.h"

namespace reel::nn {

class Ema;

/// What a group of parameters has of its own; not given: as the others.
struct GroupOptions {
  std::optional<Schedule> lr = {};
  std::optional<double> weight_decay = {};
};

/// What optimisers have in common. Their state lies parallel to the parameters' flat buffers, so that a step is one kernel
/// per buffer. A parameter that no sweep has reached since the last step is left alone, with its state; so is one that is
/// not trainable. For one thread.
class REEL_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Changes the parameters by their gradients and clears these. Counts as a write to each parameter that it changes.
  /// With the option max_norm: as clip_gradients(max_norm) before, to the bit, but gradients are scaled as the step reads them,
  /// which takes no pass of its own; on a GPU the host waits once a step, for the norm.
  /// Throws Error if parameters have moved in memory since the first step (Module::to).
  void step(SourceLocation where = SourceLocation::current());
  /// The same, and ema.update() behind it, to the bit, but averages are brought up to date as the step writes the values. All of the
  /// average's parameters are: of several optimisers one takes it along, the last. Throws Error as both do, before anything changes.
  void step(Ema& ema, SourceLocation where = SourceLocation::current());
  /// The norm that the last step's gradients had before max_norm was applied. Throws Error without that option, and before a
  /// step.
  double gradient_norm(SourceLocation where = SourceLocation::current()) const;

  /// clip_grad_norm for all its parameters, at once, for who uses the gradients before the step. Else the option max_norm is
  /// cheaper.
  double clip_gradients(double max_norm, SourceLocation where = SourceLocation::current());

  /// Forgets gradients without a step.
  void zero_gradients();

  /// Gives the parameters of this group (Module::set_group) a rate or a decay of their own. Throws Error if no parameter
  /// is in the group, or for a negative decay.
  void group(const std::string& name, GroupOptions options, SourceLocation where = SourceLocation::current());

  /// Replaces the learning rate of parameters without one of their group's.
  void set_rate(Schedule rate) { rate_ = std::move(rate); }
  /// What the next step uses.
  double rate(SourceLocation where = SourceLocation::current()) const { return rate_.at(steps_, kind_, where); }
  /// Tells the schedules of a result on held-out data (Schedule::observe).
  void observe(double score);

  /// Calls of step() so far, resumed runs included.
  std::int64_t steps() const { return steps_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// "Adam"
  const char* kind() const { return kind_; }

  /// Everything that the next step depends on beside parameters and options: counts, schedules' states, and buffers, which
  /// are given as views. For checkpoints.
  std::vector<NamedTensor> state();
  /// Takes over what state() of an optimiser made in the same way gave. Throws Error, and changes nothing, if names, sizes
  /// or counts do not fit.
  void load_state(const std::vector<NamedTensor>& state, SourceLocation where = SourceLocation::current());

 protected:
  /// Elements [begin, end) of a part, with padding between them, that take the same step.
  struct Piece {
    std::int64_t begin, end;
    std::int64_t steps;  // that were made before this one
    double rate, decay;
    double gradient_scale;            // by which the step multiplies gradients
    std::size_t first = 0, last = 0;  // of home's members
  };
  /// The stretch of a flat buffer in which the parameters lie, with the optimiser's buffers parallel to it.
  struct Part {
    std::shared_ptr<reel::detail::FlatBuffer> home;
    std::int64_t low = 0, high = 0;          // of home's elements
    std::vector<std::size_t> members = {};   // indices into parameters(), by place
    std::vector<std::int64_t> offsets = {};  // of the members in home, when the part was made
    std::vector<Tensor> buffers = {};        // [high - low] each
  };

  /// `call` is "Adam::step"; `buffers` are names. Both are string constants.
  Optimizer(const char* kind, const char* call, std::vector<const char*> buffers, std::vector<Parameter> parameters,
            Schedule rate, double decay, std::optional<double> max_norm, SourceLocation where);

  /// w and g are the part's stretch of values and gradients.
  virtual void update(const std::vector<Piece>& pieces, Part& part, const Array& w, const Array& g,
                      const WeightAverage* ema) = 0;
  /// Whether zeros between parameters stay zeros in a step, so that it may run across them.
  virtual bool keeps_zeros() const { return true; }

 private:
  struct Group {
    std::string name;
    GroupOptions options;
    double rate = 0;  // of this step
  };

  void lay_out(SourceLocation where);
  void take_step(Ema* ema, SourceLocation where);
  template <class F>
  void for_each_other(const Part& part, F f) const;
  std::optional<WeightAverage> average_of(Ema* ema, const Part& part) const;
  void find_pieces(const Part& part, double rate, double gradient_scale);
  std::vector<double> schedule_states() const;
  void load_schedule_states(const std::vector<double>& all, SourceLocation where);

  const char* kind_;
  const char* call_;
  std::vector<const char*> buffer_names_;
  std::vector<Parameter> parameters_;
  Schedule rate_;
  double decay_;
  std::optional<double> max_norm_, gradient_norm_;
  std::vector<Group> groups_;
  std::int64_t steps_ = 0;
  std::vector<std::int64_t> counts_;  // steps of each parameter
  std::vector<Part> parts_;
  std::vector<Piece> pieces_;  // kept from step to step, as a steady step allocates nothing
};

/// Scales the gradients of trainable parameters by max_norm / (norm + 1e-6) if that is below 1, where norm is the square root
/// of the sum of all their squares, summed in double, in an order that depends on the sizes alone; returns norm. If it is NaN
/// nothing is scaled, so that the NaN shows; if it is infinite, what was infinite becomes NaN. Throws Error unless
/// max_norm > 0. For all of a model's parameters, or for some of them: a group of its own norm. The formula is that of
/// torch.nn.utils.clip_grad_norm_.
REEL_API double clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm,
                               SourceLocation where = SourceLocation::current());
/// Puts each element of their gradients into [-limit, limit]; NaN stays. Throws Error unless limit >= 0.
REEL_API void clip_grad_value(const std::vector<Parameter>& parameters, double limit,
                              SourceLocation where = SourceLocation::current());

// In all options below, max_norm > 0 bounds the norm of all gradients of a step together, as clip_grad_norm does; without it
// they are not clipped. Infinity: the norm is computed, and that is all.

struct SgdOptions {
  Schedule lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;  // needs momentum > 0 and dampening 0
  double weight_decay = 0;
  std::optional<double> max_norm = {};
};

/// g += weight_decay w; u = momentum u + (1 - dampening) g (at first u = g); w -= lr u, or lr (g + momentum u) by Nesterov.
class REEL_API SGD : public Optimizer {
 public:
  using Options = SgdOptions;
  /// Throws Error for options out of range.
  explicit SGD(std::vector<Parameter> parameters, SgdOptions options = {},
               SourceLocation where = SourceLocation::current());

 private:
  void update(const std::vector<Piece>& pieces, Part& part, const Array& w, const Array& g,
              const WeightAverage* ema) override;

  double momentum_, dampening_;
  bool nesterov_;
  std::vector<SgdRange> ranges_;
};

struct AdamOptions {
  Schedule lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  std::optional<double> max_norm = {};
};

namespace detail {
class REEL_API AdamBase : public Optimizer {
 protected:
  AdamBase(const char* kind, const char* call, std::vector<Parameter> parameters, const AdamOptions& options,
           bool decoupled, bool rectified, SourceLocation where);

 private:
  void update(const std::vector<Piece>& pieces, Part& part, const Array& w, const Array& g,
              const WeightAverage* ema) override;
  bool keeps_zeros() const override { return epsilon_ > 0; }

  double beta1_, beta2_, epsilon_;
  bool decoupled_, rectified_;
  std::vector<AdamRange> ranges_;
};
}  // namespace detail

/// g += weight_decay w; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; in its step t a parameter moves by
/// w -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps). Kingma and Ba 2015, "Adam".
class REEL_API Adam : public detail::AdamBase {
 public:
  using Options = AdamOptions;
  /// Throws Error for options out of range.
  explicit Adam(std::vector<Parameter> parameters, const AdamOptions& options = {},
                SourceLocation where = SourceLocation::current());
};

struct AdamWOptions {
  Schedule lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  std::optional<double> max_norm = {};
};

/// Adam where the decay is apart from the gradient: w -= lr weight_decay w. Loshchilov and Hutter 2019, "Decoupled Weight
/// Decay Regularization".
class REEL_API AdamW : public detail::AdamBase {
 public:
  using Options = AdamWOptions;
  /// Throws Error for options out of range.
  explicit AdamW(std::vector<Parameter> parameters, const AdamWOptions& options = {},
                 SourceLocation where = SourceLocation::current());
};

struct RAdamOptions {
  Schedule lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // the decay is apart from the gradient, as in AdamW
  std::optional<double> max_norm = {};
};

/// Adam whose rate follows the variance of its second moment: with rho = 2 / (1 - beta2) - 1, in step t
/// rho_t = rho - 2 t beta2^t / (1 - beta2^t). Where rho_t > 5 the step of Adam (with eps added to sqrt(v) itself, as PyTorch
/// has it) is multiplied by sqrt((rho_t - 4) (rho_t - 2) rho / ((rho - 4) (rho - 2) rho_t)); before that it is
/// w -= lr m / (1 - beta1^t). Liu et al. 2020, "On the Variance of the Adaptive Learning Rate and Beyond".
class REEL_API RAdam : public detail::AdamBase {
 public:
  using Options = RAdamOptions;
  /// Throws Error for options out of range.
  explicit RAdam(std::vector<Parameter> parameters, const RAdamOptions& options = {},
                 SourceLocation where = SourceLocation::current());
};

struct RMSpropOptions {
  Schedule lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double momentum = 0;
  bool centered = false;
  double weight_decay = 0;
  std::optional<double> max_norm = {};
};

/// g += weight_decay w; v = alpha v + (1 - alpha) g^2; centered: a = alpha a + (1 - alpha) g and v - a^2, at least 0, in place
/// of v; s = g / (sqrt(v) + eps); w -= lr s, or with momentum u = momentum u + s, w -= lr u. Hinton 2012 (lecture 6e of
/// "Neural Networks for Machine Learning"); centered: Graves 2013.
class REEL_API RMSprop : public Optimizer {
 public:
  using Options = RMSpropOptions;
  /// Throws Error for options out of range.
  explicit RMSprop(std::vector<Parameter> parameters, const RMSpropOptions& options = {},
                   SourceLocation where = SourceLocation::current());

 private:
  void update(const std::vector<Piece>& pieces, Part& part, const Array& w, const Array& g,
              const WeightAverage* ema) override;
  bool keeps_zeros() const override { return epsilon_ > 0; }

  double alpha_, epsilon_, momentum_;
  bool centered_;
  std::vector<RmspropRange> ranges_;
};

struct AdagradOptions {
  Schedule lr = 1e-2;
  double lr_decay = 0;
  double eps = 1e-10;
  double weight_decay = 0;
  double initial = 0;  // what the sums of squares begin with
  std::optional<double> max_norm = {};
};

/// g += weight_decay w; sum += g^2; in its step t a parameter moves by w -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps).
/// Duchi, Hazan and Singer 2011, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization".
class REEL_API Adagrad : public Optimizer {
 public:
  using Options = AdagradOptions;
  /// Throws Error for options out of range.
  explicit Adagrad(std::vector<Parameter> parameters, const AdagradOptions& options = {},
                   SourceLocation where = SourceLocation::current());

 private:
  void update(const std::vector<Piece>& pieces, Part& part, const Array& w, const Array& g,
              const WeightAverage* ema) override;
  bool keeps_zeros() const override { return epsilon_ > 0; }

  double rate_decay_, epsilon_, initial_;
  std::vector<AdagradRange> ranges_;
};

}  // namespace reel::nn
