//go:build never

package main

import (
	_ "github.com/HdrHistogram/hdrhistogram-go"
	_ "github.com/alicebob/miniredis/v2"
	_ "github.com/google/uuid"
	_ "github.com/lib/pq"
	_ "github.com/lib/pq/pqerror"
	_ "github.com/pressly/goose/v3"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/sony/gobreaker/v2"
	_ "github.com/spf13/cobra"
	_ "github.com/valyala/fasthttp"
	_ "github.com/valyala/fasthttp/fasthttputil"
	_ "github.com/valyala/fastjson"
	_ "go.uber.org/goleak"
	_ "go.uber.org/zap"
	_ "go.uber.org/zap/zaptest/observer"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/time/rate"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
)
