# The workbench on a CPU:  docker build -t kev .  &&  docker run --rm -p 7860:7860 -v kev:/data kev
FROM python:3.11-slim

# Mirrors of the package index and of torch's CPU wheels, for places where these are slow.
ARG PIP_INDEX_URL=https://pypi.org/simple
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
ENV PIP_INDEX_URL=$PIP_INDEX_URL PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

WORKDIR /app
COPY requirements.txt ./
# Of the two indexes pip takes the higher version, and 2.13.0+cpu is higher than 2.13.0.
RUN pip install --extra-index-url "$TORCH_INDEX_URL" -r requirements.txt

COPY app.py ./
COPY app ./app
COPY kev_engine ./kev_engine
COPY assets ./assets
# Later nobody may write beside the sources, and each start would compile them.
RUN python -m compileall -q app kev_engine

# Models and the history live in /data; nothing runs as root.
ENV KEV_HOME=/data GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=7860
RUN useradd --uid 1000 --create-home kev && mkdir /data && chown kev:kev /data
USER kev

# The embedded model comes with the image, so a container starts without the network.
RUN python -c "import os; from kev_engine.config import cache_home; from kev_engine.models.sources import resolve; resolve('embedded', cache_home(os.environ))"
VOLUME /data
EXPOSE 7860
HEALTHCHECK --start-period=120s CMD python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/', timeout=5)"
CMD ["python", "app.py"]
