"""Agents: deep Q, soft actor-critic, proximal policy optimisation."""

from __future__ import annotations

import copy
import random
from collections import deque, namedtuple


def dqn(torch, nn, F, run):
    Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))

    class ReplayMemory:
        def __init__(self, capacity):
            self.memory = deque(maxlen=capacity)

        def push(self, *args):
            self.memory.append(Transition(*args))

        def sample(self, batch_size):
            return random.sample(self.memory, batch_size)

        def __len__(self):
            return len(self.memory)

    class DQN(nn.Module):
        def __init__(self, n_observations, n_actions):
            super().__init__()
            self.layer1 = nn.Linear(n_observations, 16)
            self.layer2 = nn.Linear(16, 16)
            self.layer3 = nn.Linear(16, n_actions)

        def forward(self, x):
            x = F.relu(self.layer1(x))
            x = F.relu(self.layer2(x))
            return self.layer3(x)

    random.seed(0)
    policy_net = run.start(DQN(4, 3))
    target_net = DQN(4, 3)
    target_net.load_state_dict(policy_net.state_dict())
    run.models.append(target_net)
    optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
    memory = ReplayMemory(100)
    gamma, tau, batch_size = 0.99, 0.005, 8

    def select_action(state):
        if random.random() > 0.3:
            with torch.no_grad():
                return policy_net(state).max(1).indices.view(1, 1)
        return torch.tensor([[random.randrange(3)]], device=state.device, dtype=torch.long)

    state = run.randn(1, 4)
    for t in range(24):
        action = select_action(state)
        next_state = None if t % 6 == 5 else run.randn(1, 4)
        reward = torch.tensor([float(action.item()) - 1.0], dtype=state.dtype)
        memory.push(state, action, next_state, reward)
        state = run.randn(1, 4) if next_state is None else next_state

    @run.step
    def optimize(state_batch, action_batch, reward_batch, next_states, non_final):
        state_action_values = policy_net(state_batch).gather(1, action_batch)
        with torch.no_grad():
            best = target_net(next_states).max(1).values
            next_state_values = torch.where(non_final, best, torch.zeros_like(best))
        expected = (next_state_values * gamma) + reward_batch
        criterion = nn.SmoothL1Loss()
        loss = criterion(state_action_values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
        with torch.no_grad():
            for target, source in zip(
                target_net.parameters(), policy_net.parameters(), strict=True
            ):
                target.lerp_(source, tau)
        return loss

    for _ in range(4):
        batch = Transition(*zip(*memory.sample(batch_size), strict=True))
        non_final = torch.tensor(
            tuple(map(lambda s: s is not None, batch.next_state)), dtype=torch.bool
        )
        next_states = torch.cat(
            [s if s is not None else torch.zeros_like(state) for s in batch.next_state]
        )
        run.note(
            loss=optimize(
                torch.cat(batch.state),
                torch.cat(batch.action),
                torch.cat(batch.reward),
                next_states,
                non_final,
            )
        )
    target_net_state_dict = target_net.state_dict()
    policy_net_state_dict = policy_net.state_dict()
    for key in policy_net_state_dict:
        target_net_state_dict[key] = policy_net_state_dict[key] * tau + target_net_state_dict[
            key
        ] * (1 - tau)
    target_net.load_state_dict(target_net_state_dict)


def sac(torch, nn, F, run):
    Normal = torch.distributions.Normal
    LOG_STD_MIN, LOG_STD_MAX = -5, 2

    class Actor(nn.Module):
        def __init__(self, obs, act):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(obs, 16), nn.Linear(16, 16)
            self.fc_mean, self.fc_logstd = nn.Linear(16, act), nn.Linear(16, act)
            self.register_buffer("action_scale", torch.tensor([2.0] * act))
            self.register_buffer("action_bias", torch.tensor([0.5] * act))

        def forward(self, x):
            x = F.relu(self.fc2(F.relu(self.fc1(x))))
            log_std = torch.tanh(self.fc_logstd(x))
            log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
            return self.fc_mean(x), log_std

        def get_action(self, x, eps):
            mean, log_std = self(x)
            normal = Normal(mean, log_std.exp())
            x_t = mean + log_std.exp() * eps
            y_t = torch.tanh(x_t)
            action = y_t * self.action_scale + self.action_bias
            log_prob = normal.log_prob(x_t)
            log_prob -= torch.log(self.action_scale * (1 - y_t.pow(2)) + 1e-6)
            return action, log_prob.sum(1, keepdim=True)

    class SoftQ(nn.Module):
        def __init__(self, obs, act):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(obs + act, 16), nn.Linear(16, 1)

        def forward(self, x, a):
            return self.fc2(F.relu(self.fc1(torch.cat([x, a], 1))))

    actor = run.start(Actor(5, 2))
    qf1, qf2 = run.start(SoftQ(5, 2)), run.start(SoftQ(5, 2))
    qf1_target, qf2_target = copy.deepcopy(qf1), copy.deepcopy(qf2)
    run.models += [qf1_target, qf2_target]
    q_optimizer = torch.optim.Adam(list(qf1.parameters()) + list(qf2.parameters()), lr=1e-3)
    actor_optimizer = torch.optim.Adam(list(actor.parameters()), lr=3e-4)
    target_entropy = -torch.prod(torch.Tensor((2,))).item()
    log_alpha = torch.zeros(1, requires_grad=True)
    a_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)
    gamma, tau = 0.99, 0.05

    @run.step
    def update(obs, actions, rewards, next_obs, dones, eps, eps2):
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            next_actions, next_log_pi = actor.get_action(next_obs, eps)
            q_next = torch.min(
                qf1_target(next_obs, next_actions), qf2_target(next_obs, next_actions)
            )
            q_next = q_next - alpha * next_log_pi
            target = rewards.flatten() + (1 - dones.flatten()) * gamma * q_next.view(-1)
        qf_loss = F.mse_loss(qf1(obs, actions).view(-1), target) + F.mse_loss(
            qf2(obs, actions).view(-1), target
        )
        q_optimizer.zero_grad()
        qf_loss.backward()
        q_optimizer.step()

        pi, log_pi = actor.get_action(obs, eps2)
        min_qf_pi = torch.min(qf1(obs, pi), qf2(obs, pi))
        actor_loss = ((alpha * log_pi) - min_qf_pi).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()

        alpha_loss = (-log_alpha.exp() * (log_pi.detach() + target_entropy)).mean()
        a_optimizer.zero_grad()
        alpha_loss.backward()
        a_optimizer.step()

        for q, q_target in ((qf1, qf1_target), (qf2, qf2_target)):
            for param, target_param in zip(q.parameters(), q_target.parameters(), strict=True):
                target_param.data.copy_(tau * param.data + (1 - tau) * target_param.data)
        return qf_loss, actor_loss, alpha_loss

    for _ in range(3):
        losses = update(
            run.randn(8, 5),
            run.randn(8, 2),
            run.randn(8, 1),
            run.randn(8, 5),
            (run.rand(8, 1) > 0.8).to(log_alpha.dtype),
            run.randn(8, 2),
            run.randn(8, 2),
        )
        run.note(q=losses[0].item(), actor=losses[1].item(), alpha=losses[2].item())


def ppo(torch, nn, F, run):
    Categorical = torch.distributions.Categorical

    def layer_init(layer, std=2**0.5, bias_const=0.0):
        torch.nn.init.orthogonal_(layer.weight, std)
        torch.nn.init.constant_(layer.bias, bias_const)
        return layer

    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.critic = nn.Sequential(
                layer_init(nn.Linear(4, 16)), nn.Tanh(), layer_init(nn.Linear(16, 1), std=1.0)
            )
            self.actor = nn.Sequential(
                layer_init(nn.Linear(4, 16)), nn.Tanh(), layer_init(nn.Linear(16, 3), std=0.01)
            )

        def get_value(self, x):
            return self.critic(x)

        def get_action_and_value(self, x, action=None):
            probs = Categorical(logits=self.actor(x))
            if action is None:
                action = probs.sample()
            return action, probs.log_prob(action), probs.entropy(), self.critic(x)

    agent = run.start(Agent())
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    num_steps, num_envs = 8, 2
    obs = torch.zeros((num_steps, num_envs, 4))
    actions, logprobs = torch.zeros((num_steps, num_envs)), torch.zeros((num_steps, num_envs))
    rewards, dones = torch.zeros((num_steps, num_envs)), torch.zeros((num_steps, num_envs))
    values = torch.zeros((num_steps, num_envs))
    for step in range(num_steps):
        obs[step] = run.randn(num_envs, 4)
        dones[step] = (run.rand(num_envs) > 0.8).to(dones.dtype)
        with torch.no_grad():
            assert agent.get_action_and_value(obs[step])[0].shape == (num_envs,)
            action, logprob, _, value = agent.get_action_and_value(
                obs[step], run.randint(0, 3, (num_envs,))
            )
            values[step] = value.flatten()
        actions[step], logprobs[step] = action, logprob
        rewards[step] = run.randn(num_envs).view(-1)
    with torch.no_grad():
        next_value = agent.get_value(run.randn(num_envs, 4)).reshape(1, -1)
        advantages = torch.zeros_like(rewards)
        lastgaelam = 0
        for t in reversed(range(num_steps)):
            if t == num_steps - 1:
                nextnonterminal, nextvalues = torch.ones(num_envs), next_value
            else:
                nextnonterminal, nextvalues = 1.0 - dones[t + 1], values[t + 1]
            delta = rewards[t] + 0.99 * nextvalues * nextnonterminal - values[t]
            advantages[t] = lastgaelam = delta + 0.99 * 0.95 * nextnonterminal * lastgaelam
        returns = advantages + values
    run.note(advantages=advantages)
    b_obs, b_actions = obs.reshape((-1, 4)), actions.reshape(-1)
    b_logprobs, b_values = logprobs.reshape(-1), values.reshape(-1)
    b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)

    @run.step
    def update(mb_inds):
        _, newlogprob, entropy, newvalue = agent.get_action_and_value(
            b_obs[mb_inds], b_actions.long()[mb_inds]
        )
        logratio = newlogprob - b_logprobs[mb_inds]
        ratio = logratio.exp()
        with torch.no_grad():
            approx_kl = ((ratio - 1) - logratio).mean()
            clipfrac = ((ratio - 1.0).abs() > 0.2).float().mean()
        mb_advantages = b_advantages[mb_inds]
        mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
        pg_loss1 = -mb_advantages * ratio
        pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)
        pg_loss = torch.max(pg_loss1, pg_loss2).mean()
        newvalue = newvalue.view(-1)
        v_clipped = b_values[mb_inds] + torch.clamp(newvalue - b_values[mb_inds], -0.2, 0.2)
        v_loss = (
            0.5
            * torch.max(
                (newvalue - b_returns[mb_inds]) ** 2, (v_clipped - b_returns[mb_inds]) ** 2
            ).mean()
        )
        loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        return loss, approx_kl, clipfrac

    for _ in range(2):
        b_inds = run.numbers.permutation(num_steps * num_envs)
        for start in range(0, len(b_inds), 8):
            mb_inds = torch.as_tensor(b_inds[start : start + 8])
            loss, approx_kl, clipfrac = update(mb_inds)
            run.note(loss=loss.item(), approx_kl=approx_kl.item(), clipfrac=clipfrac.item())
