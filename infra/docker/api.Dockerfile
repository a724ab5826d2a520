# The roles that need no PyTorch: api, celery worker, celery beat. From the repository's root:
#   docker build -f infra/docker/api.Dockerfile -t speechmill-api .

FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/speechmill
# What the farm needs is a layer of its own, which a change of the farm's code leaves alone.
COPY pyproject.toml infra/docker/needs.py ./
COPY requirements requirements
RUN python needs.py > needs.txt && /opt/speechmill/bin/pip install --constraint requirements/lock.txt -r needs.txt
COPY . .
RUN /opt/speechmill/bin/pip install --no-deps .

FROM python:3.11-slim
RUN useradd --uid 10001 --create-home speechmill
COPY --from=build /opt/speechmill /opt/speechmill
ENV PATH=/opt/speechmill/bin:$PATH PYTHONUNBUFFERED=1 SPEECHMILL_API__HOST=0.0.0.0
USER 10001
WORKDIR /home/speechmill
EXPOSE 8091
# Whether this process lives; whether a request would be served, /health/ready says.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8091/health', timeout=4)"]
ENTRYPOINT ["speechmill"]
CMD ["api"]
