"""What stands around the step: loaders, hooks, averages, accumulation, checkpoints, stopping."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path


def trainer(torch, nn, F, run):
    class Sentences(torch.utils.data.Dataset):
        def __init__(self, n):
            self.items = [
                (run.randint(1, 20, (3 + i % 4,)), int(run.numbers.integers(0, 3)))
                for i in range(n)
            ]

        def __len__(self):
            return len(self.items)

        def __getitem__(self, idx):
            words, label = self.items[idx]
            return {"words": words, "label": label}

    def collate_batch(batch):
        words = nn.utils.rnn.pad_sequence([b["words"] for b in batch], batch_first=True)
        words = F.pad(words, (0, 6 - words.shape[1]))
        return words, torch.tensor([b["label"] for b in batch], dtype=torch.int64)

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(20, 8, padding_idx=0)
            self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
            self.scales = nn.ParameterList([nn.Parameter(torch.ones(8)) for _ in range(2)])
            self.head = nn.Linear(8, 3)
            self.register_buffer("steps", torch.zeros(1, dtype=torch.long))

        def forward(self, words):
            mask = (words != 0).unsqueeze(-1).to(self.head.weight.dtype)
            x = (self.embedding(words) * mask).sum(1) / mask.sum(1).clamp(min=1)
            for block, scale in zip(self.blocks, self.scales, strict=True):
                x = x + torch.relu(block(x)) * scale
            if self.training:
                self.steps += 1
            return self.head(x)

    class EMA:
        def __init__(self, model, decay=0.9):
            self.module = copy.deepcopy(model).eval()
            self.decay = decay
            for p in self.module.parameters():
                p.requires_grad_(False)

        @torch.no_grad()
        def update(self, model):
            for ema_v, model_v in zip(
                self.module.state_dict().values(), model.state_dict().values(), strict=True
            ):
                if ema_v.dtype.is_floating_point:
                    ema_v.copy_(self.decay * ema_v + (1.0 - self.decay) * model_v)
                else:
                    ema_v.copy_(model_v)

    dataset = Sentences(20)
    train_set = torch.utils.data.Subset(dataset, range(14))
    val_set = torch.utils.data.Subset(dataset, range(14, 20))
    train_loader = torch.utils.data.DataLoader(
        train_set, batch_size=4, collate_fn=collate_batch, shuffle=False, num_workers=0
    )
    val_loader = torch.utils.data.DataLoader(val_set, batch_size=6, collate_fn=collate_batch)
    model = run.start(Classifier())
    ema = EMA(model)
    run.models.append(ema.module)
    for name, param in model.named_parameters():
        if name.startswith("blocks.0"):
            param.requires_grad = False
    decay = [p for n, p in model.named_parameters() if p.requires_grad and n.endswith("weight")]
    rest = [p for n, p in model.named_parameters() if p.requires_grad and not n.endswith("weight")]
    optimizer = torch.optim.AdamW(
        [{"params": decay}, {"params": rest, "weight_decay": 0.0, "lr": 2e-3}], lr=1e-2
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 5))
    criterion = nn.CrossEntropyLoss(reduction="mean")
    activations = {}
    handle = model.blocks[1].register_forward_hook(
        lambda module, args, output: activations.update(block=output.detach())
    )
    accumulate = 2

    @run.step
    def micro_step(words, labels):
        loss = criterion(model(words), labels) / accumulate
        loss.backward()
        return loss

    @run.step
    def apply_step():
        norm = torch.nn.utils.clip_grad_norm_(
            [p for p in model.parameters() if p.requires_grad], max_norm=0.5
        )
        optimizer.step()
        optimizer.zero_grad()
        return norm

    @torch.no_grad()
    def evaluate(net):
        net.eval()
        correct, total, confusion = 0, 0, torch.zeros(3, 3, dtype=torch.int64)
        for words, labels in val_loader:
            preds = torch.max(net(words), 1)[1]
            total += labels.size(0)
            correct += (preds == labels).sum().item()
            for t, p in zip(labels.view(-1), preds.view(-1), strict=True):
                confusion[t.long(), p.long()] += 1
            both = F.one_hot(labels, 3).t() @ F.one_hot(preds, 3)
            assert torch.equal(both, confusion)
        net.train()
        return 100.0 * correct / total, confusion

    if run.compiled:
        handle.remove()  # a compiled step lets no tensor out but by return
    best_acc, patience, best_state = -1.0, 0, None
    for epoch in range(3):
        running_loss = 0.0
        for i, (words, labels) in enumerate(train_loader):
            running_loss += micro_step(words, labels).item()
            if (i + 1) % accumulate == 0 or i + 1 == len(train_loader):
                run.note(norm=apply_step())
                scheduler.step()
                ema.update(model)
        acc, confusion = evaluate(ema.module)
        run.note(loss=running_loss, acc=acc, confusion=confusion)
        if acc > best_acc:
            best_acc, patience, best_state = acc, 0, copy.deepcopy(model.state_dict())
        else:
            patience += 1
            if patience >= 2:
                break
    handle.remove()
    if not run.compiled:
        assert activations["block"].shape[-1] == 8 and not activations["block"].requires_grad
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        torch.save(
            {
                "epoch": epoch,
                "model_state_dict": best_state,
                "optimizer_state_dict": optimizer.state_dict(),
                "scheduler_state_dict": scheduler.state_dict(),
                "best_acc": best_acc,
            },
            path,
        )
        checkpoint = torch.load(path, map_location="cpu")
    fresh = Classifier()
    missing, unexpected = fresh.load_state_dict(checkpoint["model_state_dict"], strict=False)
    assert not missing and not unexpected
    optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    scheduler.load_state_dict(checkpoint["scheduler_state_dict"])
    run.models.append(fresh)
    run.note(epoch=checkpoint["epoch"], best=checkpoint["best_acc"], lr=scheduler.get_last_lr())


def averaged(torch, nn, F, run):
    """Stochastic weight averaging, after a run with cosine restarts and a layer that thaws."""
    model = run.start(
        nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.PReLU(), nn.Linear(12, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2, T_mult=2)
    swa_model = torch.optim.swa_utils.AveragedModel(model)
    swa_scheduler = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
    x, y = run.randn(24, 5), run.randn(24, 1)
    dataset = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, drop_last=True)
    loss_fn = nn.L1Loss()

    @run.step
    def step(inputs, targets):
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    for p in model[0].parameters():
        p.requires_grad = False
    for epoch in range(4):
        if epoch == 1:
            for p in model[0].parameters():
                p.requires_grad = True
        for inputs, targets in loader:
            run.note(loss=step(inputs, targets).item())
        if epoch >= 2:
            swa_model.update_parameters(model)
            swa_scheduler.step()
        else:
            scheduler.step()
    torch.optim.swa_utils.update_bn(loader, swa_model)
    run.models.append(swa_model)
    swa_model.eval()
    with torch.no_grad():
        run.note(out=swa_model(x), r2=1 - (swa_model(x) - y).var() / y.var())
