"""PyTorch's side of the rows for GPUs (reel_gpu.cpp, reel_models.cpp, reel_ragged.cpp and reel_kernels.cpp with
REEL_BENCH_DEVICE=cuda): true f32, cuDNN free to try its algorithms. "@variant" where PyTorch has several ways; the
fastest counts."""

import torch
import torch.nn.functional as F

# As in rows.h.
LARGE, REPEATED, MANY, SHOWN = 2**26, 2**20, 2**25, 2**15
SEQUENCES, WIDTH, HEADS, EQUAL_LENGTH = 1000, 64, 4, 50
RATE = 0.01


def rows(inputs, digest):
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    cuda = torch.device("cuda")
    found = {}

    def tensor(stream, shape, scale=1.0):
        count = 1
        for size in shape:
            count *= size
        if count >= MANY:
            return torch.from_numpy(inputs(stream, (REPEATED,), scale)).to(cuda).repeat(count // REPEATED).reshape(shape)
        return torch.from_numpy(inputs(stream, (max(count, 1),), scale)).to(cuda).reshape(shape)

    def labels(count, classes):
        from_stream = (inputs(5, (count,)).astype("float64") + 1) * 0.5 * classes
        return torch.from_numpy(from_stream.astype("int64")).to(cuda)

    def shown(tensors):
        parts = []
        for x in tensors:
            x = x.detach().flatten()
            parts.append((torch.cat([x[:SHOWN], x[-SHOWN:]]) if x.numel() >= MANY else x).cpu().numpy())
        return digest(parts)

    def forward(f, xs, result=lambda y: y, mode=torch.inference_mode):
        last = []

        def calls(n):
            with mode():
                for _ in range(n):
                    y = f(*xs)
            torch.cuda.synchronize()
            last[:] = [y]

        return calls, lambda: shown([result(last[0])])

    def with_backward(f, xs, dy=None, result=lambda g: g):
        xs = [x.requires_grad_(True) for x in xs]
        if dy is None:
            shape = tuple(f(*xs).shape)
            dy = tensor(50, shape) if shape else torch.ones((), device=cuda)
        last = []

        def calls(n):
            for _ in range(n):
                gradients = torch.autograd.grad(f(*xs), xs, dy)
            torch.cuda.synchronize()
            last[:] = gradients

        return calls, lambda: shown([result(g) for g in last])

    def both(name, shapes, f, backward=True, scale=1.0, only_backward=False):
        def make(run):
            return lambda: run(f, [tensor(i + 1, shape, scale) for i, shape in enumerate(shapes)])

        plain, _, variant = name.partition("@")
        variant = variant and "@" + variant
        if not only_backward:
            found[plain + variant] = make(forward)
        if backward:
            found[f"{plain}_backward{variant}"] = make(with_backward)

    # Large tensors.
    one = (LARGE,)
    both("large_add", [one, one], lambda a, b: a + b, backward=False)
    both("large_mul", [one, one], lambda a, b: a * b)
    both("large_add_row", [(LARGE // 1024, 1024), (1024,)], lambda a, b: a + b, backward=False)
    both("large_add_transposed", [(8192, 8192)] * 2, lambda a, b: a + b.T, backward=False)
    for name, f in {"exp": torch.exp, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu, "gelu": F.gelu,
                    "silu": F.silu}.items():
        both(f"large_{name}", [one], f)

    def where(run):
        condition = tensor(3, one) > 0
        return run(lambda a, b: torch.where(condition, a, b), [tensor(1, one), tensor(2, one)])

    found["large_where"] = lambda: where(forward)
    found["large_where_backward"] = lambda: where(with_backward)
    for columns in (10, 128, 1024, 8192, 262144):
        count = 2**22 if columns == 10 else LARGE // columns
        both(f"large_softmax_{columns}", [(count, columns)], lambda x: torch.softmax(x, 1))
    table = (LARGE // 1024, 1024)
    both("large_log_softmax", [table], lambda x: torch.log_softmax(x, 1))
    both("large_layer_norm", [table, (1024,), (1024,)], lambda x, w, b: F.layer_norm(x, (1024,), w, b))
    both("large_rms_norm", [table, (1024,)], lambda x, w: F.rms_norm(x, (1024,), w))
    both("large_sum", [one], torch.sum, backward=False)
    both("large_row_sums", [(8192, 8192)], lambda x: x.sum(1), backward=False)
    both("large_column_sums", [(8192, 8192)], lambda x: x.sum(0), backward=False)

    def cross_entropy(count, columns):
        target = labels(count, columns)
        return with_backward(lambda x: F.cross_entropy(x, target), [tensor(1, (count, columns), 4)])

    found["large_cross_entropy_backward"] = lambda: cross_entropy(*table)

    # Small and middle tensors: as CPUs have them.
    for name, count in {"1e3": 10**3, "1e4": 10**4, "1e5": 10**5, "1e6": 10**6}.items():
        both(f"gelu_{name}", [(count,)], F.gelu)
    for shape in ((64, 10), (1024, 1024), (32, 50257)):
        name = f"{shape[0]}x{shape[1]}"
        both(f"softmax_{name}", [shape], lambda x: torch.softmax(x, 1))
        both(f"log_softmax_{name}", [shape], lambda x: torch.log_softmax(x, 1))
        found[f"cross_entropy_{name}_backward"] = lambda shape=shape: cross_entropy(*shape)
    both("layer_norm_1024x1024", [(1024, 1024), (1024,), (1024,)], lambda x, w, b: F.layer_norm(x, (1024,), w, b))
    for n in (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000):
        both(f"sum_{n}", [(n,)], torch.sum, backward=False)
    both("row_sums_1e3x1e3", [(1000, 1000)], lambda x: x.sum(1), backward=False)
    both("column_sums_1e3x1e3", [(1000, 1000)], lambda x: x.sum(0), backward=False)

    def optimizer(kind, **options):
        p = torch.nn.Parameter(tensor(1, (LARGE,)))
        p.grad = tensor(2, (LARGE,))
        stepper = kind([p], lr=RATE, **options)

        def calls(n):
            for _ in range(n):
                stepper.step()
            torch.cuda.synchronize()

        return calls, lambda: shown([p])

    for way in ({"foreach": True}, {"fused": True}):
        name = next(iter(way))
        found[f"large_sgd@{name}"] = lambda way=way: optimizer(torch.optim.SGD, **way)
        found[f"large_adam@{name}"] = lambda way=way: optimizer(torch.optim.Adam, **way)

    for n in (1024, 4096):
        both(f"matmul_{n}", [(n, n), (n, n)], torch.matmul, backward=False)

    # Convolution, bias and ReLU.
    def conv(name, batch, c_in, c_out, size, dilation=1):
        def f(x, w, b):
            return F.conv2d(x, w, b, padding=dilation, dilation=dilation).relu_()

        def operands():
            xs = [tensor(1, (batch, c_in, size, size)), tensor(2, (c_out, c_in, 3, 3), 0.3), tensor(3, (c_out,))]
            xs = [torch.round(x * 128) / 128 for x in xs]  # conv_inputs in rows.h
            return xs[:2] + [xs[2] + 2**-15]

        found[name] = lambda: forward(f, operands())
        found[name + "_backward"] = lambda: with_backward(f, operands())

    for channels in (1, 2, 4, 8, 16, 32, 64):
        for size in (8, 16, 32, 64, 128, 256, 512):
            conv(f"conv_{channels}_{size}", 1, channels, channels, size)
    for size in (8, 16, 32, 64, 128, 256, 512):
        for dilation in range(2, 11):
            conv(f"conv_1_{size}_dilation{dilation}", 1, 1, 1, size, dilation)
    for c_in in (4, 9, 16, 25, 36, 49, 64):
        conv(f"conv_{c_in}to1_256", 1, c_in, 1, 256)
    for channels in (1, 2, 4, 8, 16, 32, 64):
        conv(f"conv_batch_{channels}_64", 32, channels, channels, 64)

    images, c = (32, 32, 32, 64), 32
    both("conv_stride_2", [images, (2 * c, c, 3, 3)], lambda x, w: F.conv2d(x, w, stride=2, padding=1))
    both("conv_depthwise", [images, (c, 1, 3, 3)], lambda x, w: F.conv2d(x, w, padding=1, groups=c))
    both("conv_1x1", [images, (2 * c, c, 1, 1)], F.conv2d)
    both("conv_transpose", [images, (c, c // 2, 4, 4)], lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1))

    # Sequences: padded with a mask, as nested tensors (which refuse inference mode), and by segments.
    def ragged(suffix, lengths):
        lengths = torch.tensor(lengths, device=cuda)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64, device=cuda), lengths.cumsum(0)])
        total, longest = int(offsets[-1]), int(lengths.max())
        mask = torch.arange(longest, device=cuda)[None] < lengths[:, None]  # [sequences, longest]
        hidden = ~mask[:, :, None]

        def padded(values):
            x = torch.zeros(SEQUENCES, longest, WIDTH, device=cuda)
            x[mask] = values
            return x

        def jagged(values):
            return torch.nested.nested_tensor_from_jagged(values, offsets, max_seqlen=longest)

        def rows_of(y):
            """The values of what f gave, as Reel gives them: [total, width], or [sequences, width]."""
            if y.is_nested:
                return y.values()
            return y[mask] if y.dim() == 3 else y

        def heads(x):
            return x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)

        def add(name, padded_f, nested_f=None, segment_f=None, streams=(1,), by_rows=False):
            def values():
                return [tensor(stream, (total, WIDTH)) for stream in streams]

            dy_shape = (total, WIDTH) if by_rows else (SEQUENCES, WIDTH)
            found[f"{name}{suffix}@padded"] = lambda: forward(padded_f, [padded(v) for v in values()], rows_of)
            found[f"{name}_backward{suffix}@padded"] = lambda: with_backward(
                padded_f, [padded(v) for v in values()], padded(tensor(50, dy_shape)) if by_rows else tensor(50, dy_shape),
                rows_of)
            if nested_f:
                def on_values(*vs):
                    y = nested_f(*(jagged(v) for v in vs))
                    return y.values() if y.is_nested else y

                found[f"{name}{suffix}@nested"] = lambda: forward(on_values, values(), mode=torch.no_grad)
                if name != "ragged_softmax":  # PyTorch 2.11's own padded way gives another gradient than its nested one
                    found[f"{name}_backward{suffix}@nested"] = lambda: with_backward(on_values, values(), tensor(50, dy_shape))
            if segment_f:
                found[f"{name}{suffix}@segment"] = lambda: forward(segment_f, values())
                found[f"{name}_backward{suffix}@segment"] = lambda: with_backward(segment_f, values(), tensor(50, dy_shape))

        def segment(how):
            return lambda v: torch.segment_reduce(v, how, lengths=lengths, axis=0, unsafe=True)

        add("ragged_sum", lambda x: x.sum(1), lambda x: x.sum(1), segment("sum"))
        add("ragged_mean", lambda x: x.sum(1) / lengths[:, None], lambda x: x.mean(1), segment("mean"))
        add("ragged_max", lambda x: x.masked_fill(hidden, -torch.inf).max(1).values, lambda x: x.amax(1), segment("max"))
        add("ragged_softmax", lambda x: x.masked_fill(hidden, -torch.inf).softmax(1), lambda x: x.softmax(1), by_rows=True)
        key_mask = mask[:, None, None, :]
        add("ragged_attention",
            lambda q, k, v: F.scaled_dot_product_attention(heads(q), heads(k), heads(v), attn_mask=key_mask)
            .transpose(1, 2).flatten(2),
            lambda q, k, v: F.scaled_dot_product_attention(heads(q), heads(k), heads(v)).transpose(1, 2).flatten(2),
            streams=(1, 2, 3), by_rows=True)

    ragged("", [1 + int((float(x) + 1) * 50) for x in inputs(7, (SEQUENCES,))])
    ragged("_equal", [EQUAL_LENGTH] * SEQUENCES)

    # The engine, and training steps of small models.
    found["add_1"] = lambda: forward(lambda a, b: a + b, [tensor(1, (1,)), tensor(2, (1,))])

    def chain():
        b = tensor(2, (1,))

        def f(x):
            for _ in range(100):
                x = x + b
            return x

        return with_backward(f, [tensor(1, (1,))])

    found["add_chain_100"] = chain

    def training(parameters, loss, make_optimizer):
        parameters = list(parameters)
        with torch.no_grad():
            for i, p in enumerate(parameters):
                fan_in = 1
                for size in p.shape[1:]:
                    fan_in *= size
                p.copy_(tensor(1000 + i, tuple(p.shape), 0.1 if p.dim() < 2 else fan_in ** -0.5))
        before = [p.detach().clone() for p in parameters]
        stepper = make_optimizer(parameters)

        def calls(n):
            for _ in range(n):
                stepper.zero_grad()
                loss().backward()
                stepper.step()
            torch.cuda.synchronize()

        return calls, lambda: shown([p - start for p, start in zip(parameters, before)])

    optimizers = {
        "sgd": {"": lambda ps: torch.optim.SGD(ps, lr=RATE), "@fused": lambda ps: torch.optim.SGD(ps, lr=RATE, fused=True)},
        "adam": {"": lambda ps: torch.optim.Adam(ps, lr=RATE), "@fused": lambda ps: torch.optim.Adam(ps, lr=RATE, fused=True)},
    }

    def mlp(widths, batch, make_optimizer):
        layers = []
        for i in range(len(widths) - 1):
            if i > 0:
                layers.append(torch.nn.ReLU())
            layers.append(torch.nn.Linear(widths[i], widths[i + 1]))
        net = torch.nn.Sequential(*layers).to(cuda)
        x, target = tensor(1, (batch, widths[0])), labels(batch, widths[-1])
        return training(net.parameters(), lambda: F.cross_entropy(net(x), target), make_optimizer)

    def cnn(make_optimizer):
        first, second = torch.nn.Conv2d(1, 8, 3, padding=1).to(cuda), torch.nn.Conv2d(8, 16, 3, padding=1).to(cuda)
        head = torch.nn.Linear(16 * 7 * 7, 10).to(cuda)
        x, target = tensor(1, (32, 1, 28, 28)), labels(32, 10)

        def loss():
            a = F.max_pool2d(first(x).relu_(), 2)
            b = F.max_pool2d(second(a).relu_(), 2)
            return F.cross_entropy(head(b.flatten(1)), target)

        return training([*first.parameters(), *second.parameters(), *head.parameters()], loss, make_optimizer)

    def lstm(make_optimizer):
        layer = torch.nn.LSTM(64, 64).to(cuda)
        x = tensor(1, (32, 16, 64))

        def loss():
            y = layer(x)[0]
            return (y * y).mean()

        return training(layer.parameters(), loss, make_optimizer)

    def transformer(make_optimizer):
        w, hidden, batch, places = 64, 256, 8, 64
        shapes = [(w,), (w,), (3 * w, w), (3 * w,), (w, w), (w,), (w,), (w,), (hidden, w), (hidden,), (w, hidden), (w,)] * 2
        p = [torch.nn.Parameter(torch.zeros(shape, device=cuda)) for shape in shapes]
        x0 = tensor(1, (batch, places, w))

        def loss():
            x = x0
            for i in range(0, len(p), 12):
                y = F.layer_norm(x, (w,), p[i], p[i + 1])
                qkv = F.linear(y, p[i + 2], p[i + 3]).view(batch, places, 3, 4, w // 4).permute(2, 0, 3, 1, 4)
                seen = F.scaled_dot_product_attention(*qkv.unbind(0))
                x = x + F.linear(seen.permute(0, 2, 1, 3).reshape(batch, places, w), p[i + 4], p[i + 5])
                y = F.gelu(F.linear(F.layer_norm(x, (w,), p[i + 6], p[i + 7]), p[i + 8], p[i + 9]))
                x = x + F.linear(y, p[i + 10], p[i + 11])
            return (x * x).mean()

        return training(p, loss, make_optimizer)

    for variant, sgd in optimizers["sgd"].items():
        found["mlp_16_32_2_sgd" + variant] = lambda sgd=sgd: mlp([16, 32, 2], 8, sgd)
        found["mlp_64_64_10_sgd" + variant] = lambda sgd=sgd: mlp([64, 64, 10], 32, sgd)
        found["mlp_784_128_10_sgd" + variant] = lambda sgd=sgd: mlp([784, 128, 10], 64, sgd)
        found["mlp_784_512_512_10_sgd" + variant] = lambda sgd=sgd: mlp([784, 512, 512, 10], 128, sgd)
        found["cnn_28" + variant] = lambda sgd=sgd: cnn(sgd)
        found["lstm_64" + variant] = lambda sgd=sgd: lstm(sgd)
        found["transformer_64" + variant] = lambda sgd=sgd: transformer(sgd)
    for variant, adam in optimizers["adam"].items():
        found["mlp_64_64_10_adam" + variant] = lambda adam=adam: mlp([64, 64, 10], 32, adam)
    return found
