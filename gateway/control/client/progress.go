package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/stockgate/stockgate/gateway/control/api"
)

// importing sends lines and follows how far the gateway is. The last line of the answer, or the only one, comes back.
func (c *Client) importing(ctx context.Context, path string, csv io.Reader, progress func(api.Progress)) (api.Progress, error) {
	p := post(path, "text/csv", input{csv})
	p.accept = api.ProgressType
	var last api.Progress
	if progress == nil {
		progress = func(api.Progress) {}
	}
	err := c.exchange(ctx, p, func(res *http.Response) error {
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != api.ProgressType {
			return c.read(res, path, &struct{}{})
		}
		return c.follow(res.Body, progress, &last)
	})
	return last, err
}

// follow reads an answer line by line.
func (c *Client) follow(body io.Reader, progress func(api.Progress), last *api.Progress) error {
	lines := bufio.NewScanner(io.LimitReader(body, answerBytesMax))
	lines.Buffer(nil, answerBytesMax)
	for lines.Scan() {
		var p api.Progress
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return c.stranger(err.Error())
		}
		switch {
		case p.Problem != nil:
			return p.Problem
		case p.Phase != "":
			progress(p)
		default:
			*last = p
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return c.unreached(err)
	}
	return nil
}

// brokenOff says that an answer ended before its last line.
func (c *Client) brokenOff() error {
	return fmt.Errorf("the answer of %s broke off: it may or may not have been done", c.base)
}
