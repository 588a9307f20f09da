"""A pole balanced on a cart: REINFORCE, with the cart's equations of motion in NumPy."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

GAMMA, LONGEST = 0.99, 60


class CartPole:
    """A pole on a cart, pushed to the left or to the right every 0.02 s (Barto et al. 1983)."""

    def __init__(self, draws):
        self.state = draws.uniform(-0.05, 0.05, 4)

    def step(self, action):
        x, speed, angle, turning = self.state
        force, length, mass, total = (10.0 if action else -10.0), 0.5, 0.1, 1.1
        push = (force + mass * length * turning**2 * np.sin(angle)) / total
        inertia = length * (4 / 3 - mass * np.cos(angle) ** 2 / total)
        bend = (9.8 * np.sin(angle) - np.cos(angle) * push) / inertia
        gain = push - mass * length * bend * np.cos(angle) / total
        self.state = self.state + 0.02 * np.array([speed, gain, turning, bend])
        done = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095)
        return self.state, 1.0, done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 128)
        self.affine2 = nn.Linear(128, 2)

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.affine2(x), dim=1)


def batches(count):
    return [(seed,) for seed in range(count)]


def models():
    return (Policy(),)


def training(policy):
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    eps = np.finfo(np.float32).eps.item()

    def select_action(state, draws):
        state = torch.from_numpy(state).float().unsqueeze(0)
        probs = policy(state)
        m = Categorical(probs)
        action = torch.tensor([int(draws.random() < probs[0, 1].item())])
        return action.item(), m.log_prob(action)

    def finish_episode(rewards, log_probs):
        R, returns = 0.0, []
        for r in rewards[::-1]:
            R = r + GAMMA * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + eps)
        policy_loss = []
        for log_prob, R in zip(log_probs, returns, strict=True):
            policy_loss.append(-log_prob * R)
        optimizer.zero_grad()
        policy_loss = torch.cat(policy_loss).sum()
        policy_loss.backward()
        optimizer.step()
        return policy_loss

    def step(seed):
        draws = np.random.default_rng(seed)
        env = CartPole(draws)
        state, rewards, log_probs = env.state, [], []
        for _ in range(LONGEST):
            action, log_prob = select_action(state, draws)
            state, reward, done = env.step(action)
            rewards.append(reward)
            log_probs.append(log_prob)
            if done:
                break
        return finish_episode(rewards, log_probs)

    return step
