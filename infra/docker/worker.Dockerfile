# The roles that compute: speechmill worker. From the repository's root:
#   docker build -f infra/docker/worker.Dockerfile -t speechmill-worker .
# For NVIDIA GPUs: --build-arg TORCH_INDEX=https://pypi.org/simple

FROM python:3.11-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/speechmill
# PyTorch first, without what it needs: the CPU index has those of its own choice, and the next step takes ours.
COPY requirements requirements
RUN /opt/speechmill/bin/pip install --no-deps --index-url "$TORCH_INDEX" -r requirements/torch.txt
COPY pyproject.toml infra/docker/needs.py ./
RUN python needs.py worker > needs.txt && /opt/speechmill/bin/pip install --constraint requirements/lock.txt -r needs.txt
COPY . .
RUN /opt/speechmill/bin/pip install --no-deps .

FROM python:3.11-slim
RUN useradd --uid 10001 --create-home speechmill
COPY --from=build /opt/speechmill /opt/speechmill
ENV PATH=/opt/speechmill/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/speechmill
ENTRYPOINT ["speechmill"]
CMD ["worker"]
