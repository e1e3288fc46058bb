"""Networks on images: transformer of patches, residual, U-shaped, style."""

from __future__ import annotations

from collections import OrderedDict


def vit(torch, nn, F, run):
    class PreNorm(nn.Module):
        def __init__(self, dim, fn):
            super().__init__()
            self.norm = nn.LayerNorm(dim)
            self.fn = fn

        def forward(self, x, **kwargs):
            return self.fn(self.norm(x), **kwargs)

    class Attention(nn.Module):
        def __init__(self, dim, heads=2, dim_head=8):
            super().__init__()
            self.heads, self.scale = heads, dim_head**-0.5
            self.to_qkv = nn.Linear(dim, heads * dim_head * 3, bias=False)
            self.to_out = nn.Sequential(nn.Linear(heads * dim_head, dim), nn.Dropout(0.0))

        def forward(self, x):
            b, n, _ = x.shape
            qkv = self.to_qkv(x).chunk(3, dim=-1)
            q, k, v = map(lambda t: t.reshape(b, n, self.heads, -1).permute(0, 2, 1, 3), qkv)
            dots = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale
            out = torch.einsum("bhij,bhjd->bhid", dots.softmax(dim=-1), v)
            return self.to_out(out.permute(0, 2, 1, 3).flatten(2))

    class ViT(nn.Module):
        def __init__(self, image=8, patch=4, dim=16, depth=2, classes=5, channels=3):
            super().__init__()
            self.patch = patch
            num_patches = (image // patch) ** 2
            self.embed = nn.Linear(channels * patch * patch, dim)
            self.pos_embedding = nn.Parameter(torch.randn(1, num_patches + 1, dim) * 0.02)
            self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
            self.layers = nn.ModuleList([])
            for _ in range(depth):
                mlp = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))
                self.layers.append(nn.ModuleList([PreNorm(dim, Attention(dim)), PreNorm(dim, mlp)]))
            self.mlp_head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes))

        def forward(self, img):
            p = self.patch
            x = img.unfold(2, p, p).unfold(3, p, p)
            x = x.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)
            x = self.embed(x)
            cls = self.cls_token.expand(x.shape[0], -1, -1)
            x = torch.cat((cls, x), dim=1)
            x += self.pos_embedding[:, : x.shape[1]]
            for attn, ff in self.layers:
                x = attn(x) + x
                x = ff(x) + x
            return self.mlp_head(x[:, 0])

    model = run.start(ViT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-2, epochs=2, steps_per_epoch=2, pct_start=0.5
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    images, labels = run.randn(8, 3, 8, 8), run.randint(0, 5, (8,))

    @run.step
    def step(img, lbl):
        out = model(img)
        loss = criterion(out, lbl)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        correct = (out.argmax(dim=1) == lbl).sum()
        return loss, correct

    for _ in range(2):
        for img, lbl in zip(images.split(4), labels.split(4), strict=True):
            loss, correct = step(img, lbl)
            scheduler.step()
            run.note(loss=loss.item(), correct=correct.item(), lr=optimizer.param_groups[0]["lr"])


def resnet(torch, nn, F, run):
    def conv3x3(in_planes, out_planes, stride=1):
        return nn.Conv2d(in_planes, out_planes, kernel_size=3, stride=stride, padding=1, bias=False)

    class BasicBlock(nn.Module):
        expansion = 1

        def __init__(self, inplanes, planes, stride=1, downsample=None):
            super().__init__()
            self.conv1 = conv3x3(inplanes, planes, stride)
            self.bn1 = nn.BatchNorm2d(planes)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = conv3x3(planes, planes)
            self.bn2 = nn.BatchNorm2d(planes)
            self.downsample = downsample

        def forward(self, x):
            identity = x
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            if self.downsample is not None:
                identity = self.downsample(x)
            out += identity
            return self.relu(out)

    class ResNet(nn.Module):
        def __init__(self, block, layers, num_classes=4):
            super().__init__()
            self.inplanes = 8
            self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(8)
            self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
            self.layer1 = self._make_layer(block, 8, layers[0])
            self.layer2 = self._make_layer(block, 16, layers[1], stride=2)
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(16 * block.expansion, num_classes)
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                    nn.init.constant_(m.weight, 1)
                    nn.init.constant_(m.bias, 0)

        def _make_layer(self, block, planes, blocks, stride=1):
            downsample = None
            if stride != 1 or self.inplanes != planes * block.expansion:
                downsample = nn.Sequential(
                    nn.Conv2d(self.inplanes, planes, 1, stride, bias=False),
                    nn.BatchNorm2d(planes * block.expansion),
                )
            layers = [block(self.inplanes, planes, stride, downsample)]
            self.inplanes = planes * block.expansion
            layers.extend(block(self.inplanes, planes) for _ in range(1, blocks))
            return nn.Sequential(*layers)

        def forward(self, x):
            x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
            x = self.avgpool(self.layer2(self.layer1(x)))
            return self.fc(torch.flatten(x, 1))

    model = run.start(ResNet(BasicBlock, [1, 2]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2], gamma=0.1)
    criterion = nn.CrossEntropyLoss()
    x, y = run.randn(6, 3, 12, 12), run.randint(0, 4, (6,))

    @run.step
    def train_step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for epoch in range(3):
        model.train()
        run.note(loss=train_step(x, y).item())
        scheduler.step()
        model.eval()
        with torch.no_grad():
            out = model(x)
            _, predicted = out.max(1)
            confusion = torch.bincount(4 * y + predicted, minlength=16).reshape(4, 4)
            run.note(out=out, confusion=confusion)


def unet(torch, nn, F, run):
    class DoubleConv(nn.Sequential):
        def __init__(self, cin, cout):
            super().__init__(
                OrderedDict(
                    conv1=nn.Conv2d(cin, cout, 3, padding=1),
                    norm1=nn.GroupNorm(2, cout),
                    act1=nn.SiLU(),
                    conv2=nn.Conv2d(cout, cout, 3, padding="same"),
                    act2=nn.LeakyReLU(0.2, inplace=True),
                )
            )

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down1, self.down2 = DoubleConv(1, 4), DoubleConv(4, 8)
            self.middle = DoubleConv(8, 8)
            self.up2 = nn.ConvTranspose2d(8, 8, 2, stride=2)
            self.dec2 = DoubleConv(16, 4)
            self.up1 = nn.ConvTranspose2d(
                4, 4, kernel_size=3, stride=2, padding=1, output_padding=1
            )
            self.dec1 = DoubleConv(8, 4)
            self.head = nn.Conv2d(4, 1, 1)

        def forward(self, x):
            d1 = self.down1(x)
            d2 = self.down2(F.max_pool2d(d1, 2))
            m = self.middle(F.avg_pool2d(d2, 2))
            u2 = self.dec2(torch.cat([self.up2(m), d2], dim=1))
            u1 = self.up1(u2)
            diff = d1.size()[3] - u1.size()[3]
            u1 = F.pad(u1, [diff // 2, diff - diff // 2, 0, 0])
            return self.head(self.dec1(torch.cat([d1, u1], 1)))

    def dice_loss(logits, target, smooth=1.0):
        probs = torch.sigmoid(logits).flatten(1)
        target = target.flatten(1)
        overlap = (probs * target).sum(1)
        return 1 - ((2.0 * overlap + smooth) / (probs.sum(1) + target.sum(1) + smooth)).mean()

    model = run.start(UNet())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9, momentum=0.9)
    x = run.randn(2, 1, 16, 16)
    y = (run.rand(2, 1, 16, 16) > 0.6).to(x.dtype)
    bce = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0], dtype=x.dtype))

    @run.step
    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        pred = model(x)
        loss = bce(pred, y) + dice_loss(pred, y)
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        return loss.detach(), (pred > 0).float().mean()

    for _ in range(3):
        loss, share = step(x, y)
        run.note(loss=loss, share=share)
    small = F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=False)
    run.note(small=small, iou=((model(x) > 0) & (y > 0.5)).sum())


def style_transfer(torch, nn, F, run):
    features = run.start(
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(4, 6, 3, padding=1),
            nn.ReLU(inplace=False),
            nn.AvgPool2d(2, 2),
            nn.Conv2d(6, 6, 3, padding=1),
        )
    )
    for param in features.parameters():
        param.requires_grad_(False)
    features.eval()

    def gram_matrix(t):
        a, b, c, d = t.size()
        m = t.view(a * b, c * d)
        G = torch.mm(m, m.t())
        return G.div(a * b * c * d)

    def collect(img):
        found = {}
        for name, layer in features.named_children():
            img = layer(img)
            found[name] = img
        return found

    content_img, style_img = run.rand(1, 3, 8, 8), run.rand(1, 3, 8, 8)
    with torch.no_grad():
        content = {k: v.clone() for k, v in collect(content_img).items()}
        style = {k: gram_matrix(v) for k, v in collect(style_img).items()}
    input_img = content_img.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([input_img], lr=0.05)

    @run.step
    def step():
        optimizer.zero_grad()
        found = collect(input_img)
        style_score = sum(F.mse_loss(gram_matrix(found[k]), style[k]) for k in ("0", "2", "5"))
        content_score = F.mse_loss(found["5"], content["5"])
        tv = (input_img[..., 1:] - input_img[..., :-1]).abs().mean()
        loss = 1e3 * style_score + content_score + 0.1 * tv
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            input_img.clamp_(0, 1)
        return loss

    for _ in range(4):
        run.note(loss=step())
    run.note(image=input_img, grad=input_img.grad)
