package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/stockgate/stockgate/config"
)

// newServeCommand is `stockgate serve`: the gateway itself.
func newServeCommand() *cobra.Command {
	var file string
	var demo bool
	at := config.DemoDefaults()
	cmd := &cobra.Command{
		Use:   "serve [--config FILE | --demo]",
		Short: "Run the gateway",
		Long: `Run the gateway until SIGTERM or SIGINT; then it drains: it is not ready any more, finishes what is in flight, writes down what
became of it, and ends.

It reads the file again when it changes, or on SIGHUP, or on POST /v1/reload of the control side, and takes all of it into use or nothing.

--demo needs nothing installed: Redis inside the process, SQLite in a temporary folder and a sample order service.`,
		Example: "  stockgate serve --demo\n  stockgate serve --config /etc/stockgate/config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case demo && file != "":
				return errors.New("--demo has a configuration of its own: leave --config away")
			case demo:
				return serveDemo(cmd.Context(), at, cmd.OutOrStdout())
			case file == "":
				return errors.New("--config is missing; to try stockgate out: stockgate serve --demo")
			}
			return serveFile(cmd.Context(), file)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file")
	cmd.Flags().BoolVar(&demo, "demo", false, "run a demo that needs nothing else")
	cmd.Flags().StringVar(&at.Listen, "demo-listen", at.Listen, "where the demo takes orders")
	cmd.Flags().StringVar(&at.Control, "demo-control", at.Control, "where the demo's control side listens")
	cmd.Flags().StringVar(&at.Orders, "demo-orders", at.Orders, "where the demo's order service listens")
	return cmd
}

// serveFile runs the gateway that a file describes.
func serveFile(ctx context.Context, file string) error {
	cfg, err := config.Load(file, config.Options{})
	if err != nil {
		return err
	}
	log, level, err := newLogger(cfg.Log)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()
	hups := make(chan os.Signal, 1) // also before there is a gateway, or the first SIGHUP would end the process
	signal.Notify(hups, syscall.SIGHUP)
	defer signal.Stop(hups)
	return serve(ctx, cfg, log, func(a *app) {
		a.level, a.reloader = level, newReloader(a, file)
		go func() {
			for {
				select {
				case <-hups:
					a.reloader.hup()
				case <-ctx.Done():
					return
				}
			}
		}()
	})
}

// serve refuses what this version would run otherwise than written, and tells what it runs in another way.
// ready is called before it runs.
func serve(ctx context.Context, cfg *config.Config, log *zap.Logger, ready func(*app)) error {
	if refused := config.Refusals(cfg); len(refused) > 0 {
		return fmt.Errorf("this version cannot serve the configuration:\n%w", refused)
	}
	for _, w := range config.Warnings(cfg) {
		log.Warn("configuration", zap.String("key", w.Key), zap.String("warning", w.Message()))
	}
	app, err := newApp(cfg, log)
	if err != nil {
		return err
	}
	ready(app)
	return app.run(ctx)
}

// newLogger writes to standard error: json for machines, console for people. Its level can be changed.
func newLogger(cfg config.Log) (*zap.Logger, zap.AtomicLevel, error) {
	level, err := zap.ParseAtomicLevel(cfg.Level)
	if err != nil {
		return nil, level, fmt.Errorf("log.level: %w", err)
	}
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime, enc.TimeKey, enc.EncodeDuration = zapcore.RFC3339NanoTimeEncoder, "time", zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(enc)
	if cfg.Format == "console" {
		enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoder = zapcore.NewConsoleEncoder(enc)
	}
	// In an outage thousands of requests have the same to say: of each message a second's first ten are written, then one in a hundred.
	core := zapcore.NewSamplerWithOptions(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level), time.Second, 10, 100)
	return zap.New(core), level, nil
}
