"""Models that make samples: variational, adversarial, diffusion."""

from __future__ import annotations

import math


def vae(torch, nn, F, run):
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(20, 16)
            self.fc21, self.fc22 = nn.Linear(16, 3), nn.Linear(16, 3)
            self.fc3, self.fc4 = nn.Linear(3, 16), nn.Linear(16, 20)

        def encode(self, x):
            h1 = F.relu(self.fc1(x))
            return self.fc21(h1), self.fc22(h1)

        def reparameterize(self, mu, logvar, eps):
            std = torch.exp(0.5 * logvar)
            assert torch.randn_like(std).shape == eps.shape
            return mu + eps * std

        def decode(self, z):
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

        def forward(self, x, eps):
            mu, logvar = self.encode(x.view(-1, 20))
            z = self.reparameterize(mu, logvar, eps)
            return self.decode(z), mu, logvar

    model = run.start(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss_function(recon_x, x, mu, logvar):
        BCE = F.binary_cross_entropy(recon_x, x.view(-1, 20), reduction="sum")
        KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return BCE + KLD

    @run.step
    def step(data, eps):
        optimizer.zero_grad()
        recon, mu, logvar = model(data, eps)
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        optimizer.step()
        return loss

    train_loss = 0
    for _ in range(4):
        loss = step(run.rand(8, 4, 5), run.randn(8, 3))
        train_loss += loss.item()
        run.note(loss=loss.item() / 8)
    run.note(train_loss=train_loss)


def gan(torch, nn, F, run):
    nz, ngf = 5, 4

    def weights_init(m):
        classname = m.__class__.__name__
        if classname.find("Conv") != -1:
            nn.init.normal_(m.weight.data, 0.0, 0.02)
        elif classname.find("BatchNorm") != -1:
            nn.init.normal_(m.weight.data, 1.0, 0.02)
            nn.init.constant_(m.bias.data, 0)

    netG = nn.Sequential(
        nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
        nn.BatchNorm2d(ngf * 2),
        nn.ReLU(True),
        nn.ConvTranspose2d(ngf * 2, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    netD = nn.Sequential(
        nn.Conv2d(1, ngf, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ngf, ngf * 2, 3, 1, 1, bias=False),
        nn.BatchNorm2d(ngf * 2),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ngf * 2, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    )
    netG.apply(weights_init)
    netD.apply(weights_init)
    run.start(netG)
    run.start(netD)
    criterion = nn.BCELoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
    real_label, fake_label = 1.0, 0.0

    @run.step
    def step(real, noise):
        netD.zero_grad()
        b_size = real.size(0)
        label = torch.full((b_size,), real_label, dtype=real.dtype, device=real.device)
        output = netD(real).view(-1)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean()
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)
        errD_fake.backward()
        D_G_z1 = output.mean()
        errD = errD_real + errD_fake
        optimizerD.step()

        netG.zero_grad()
        label.fill_(real_label)
        output = netD(fake).view(-1)
        errG = criterion(output, label)
        errG.backward()
        optimizerG.step()
        return errD, errG, D_x, D_G_z1

    for _ in range(3):
        errD, errG, D_x, D_G_z1 = step(run.randn(4, 1, 8, 8), run.randn(4, nz, 1, 1))
        run.note(errD=errD.item(), errG=errG.item(), D_x=D_x.item(), D_G_z1=D_G_z1.item())


def wgan_gp(torch, nn, F, run):
    gen = run.start(nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 2)))
    critic = run.start(
        nn.Sequential(
            nn.Linear(2, 16),
            nn.LayerNorm(16),
            nn.LeakyReLU(0.2),
            nn.Linear(16, 16),
            nn.Softplus(),
            nn.Linear(16, 1),
        )
    )
    opt_gen = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.0, 0.9))
    opt_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))

    def gradient_penalty(real, fake, alpha):
        interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        d_interpolates = critic(interpolates)
        gradients = torch.autograd.grad(
            outputs=d_interpolates,
            inputs=interpolates,
            grad_outputs=torch.ones_like(d_interpolates),
            create_graph=True,
            retain_graph=True,
            only_inputs=True,
        )[0]
        gradients = gradients.view(gradients.size(0), -1)
        return ((gradients.norm(2, dim=1) - 1) ** 2).mean()

    @run.step
    def critic_step(real, z, alpha):
        fake = gen(z).detach()
        gp = gradient_penalty(real, fake, alpha)
        loss = fake_score(fake) - critic(real).mean() + 10 * gp
        critic.zero_grad()
        loss.backward(retain_graph=True)
        opt_critic.step()
        return loss, gp

    def fake_score(fake):
        return torch.mean(critic(fake))

    @run.step
    def gen_step(z):
        for p in critic.parameters():
            p.requires_grad = False
        loss = -fake_score(gen(z))
        opt_gen.zero_grad()
        loss.backward()
        opt_gen.step()
        for p in critic.parameters():
            p.requires_grad = True
        return loss

    for _ in range(3):
        for _ in range(2):
            loss, gp = critic_step(run.randn(8, 2), run.randn(8, 4), run.rand(8, 1))
            run.note(critic=loss, gp=gp)
        run.note(gen=gen_step(run.randn(8, 4)))


def ddpm(torch, nn, F, run):
    class SinusoidalPosEmb(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.dim = dim

        def forward(self, x):
            half = self.dim // 2
            emb = math.log(10000) / (half - 1)
            emb = torch.exp(torch.arange(half, device=x.device) * -emb)
            emb = x[:, None] * emb[None, :]
            return torch.cat((emb.sin(), emb.cos()), dim=-1)

    class Denoiser(nn.Module):
        def __init__(self, dim=8):
            super().__init__()
            self.time = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, dim), nn.SiLU())
            self.conv1 = nn.Conv2d(1, dim, 3, padding=1)
            self.norm = nn.GroupNorm(2, dim)
            self.conv2 = nn.Conv2d(dim, 1, 3, padding=1)

        def forward(self, x, t):
            h = self.norm(self.conv1(x))
            scale = self.time(t)[:, :, None, None]
            return self.conv2(F.silu(h * (scale + 1)))

    timesteps = 20
    betas = torch.linspace(1e-4, 0.02, timesteps, dtype=torch.get_default_dtype())
    alphas = 1.0 - betas
    alphas_cumprod = torch.cumprod(alphas, dim=0)
    alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
    sqrt_recip_alphas = torch.sqrt(1.0 / alphas)
    posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)

    def extract(a, t, x_shape):
        batch_size = t.shape[0]
        out = a.gather(-1, t.cpu())
        return out.reshape(batch_size, *((1,) * (len(x_shape) - 1))).to(t.device)

    def q_sample(x_start, t, noise):
        return (
            extract(alphas_cumprod.sqrt(), t, x_start.shape) * x_start
            + extract((1.0 - alphas_cumprod).sqrt(), t, x_start.shape) * noise
        )

    model = run.start(Denoiser())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    @run.step
    def step(x, t, noise):
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(noise, model(q_sample(x, t, noise), t))
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        x, t = run.randn(4, 1, 8, 8), run.randint(0, timesteps, (4,))
        run.note(loss=step(x, t, run.randn(4, 1, 8, 8)))

    @torch.no_grad()
    def p_sample(x, t, t_index):
        mean = extract(sqrt_recip_alphas, t, x.shape) * (
            x - extract(betas / (1.0 - alphas_cumprod).sqrt(), t, x.shape) * model(x, t)
        )
        if t_index == 0:
            return mean
        return mean + torch.sqrt(extract(posterior_variance, t, x.shape)) * run.randn(*x.shape)

    img = run.randn(2, 1, 8, 8)
    for i in reversed(range(0, timesteps)):
        img = p_sample(img, torch.full((2,), i, dtype=torch.long), i)
    run.note(img=img, unit=(img.clamp(-1, 1) + 1) * 0.5)
