package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	requestTime = 2 * time.Minute
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 1 << 30
)

// client asks one node.
type client struct {
	ctx            context.Context
	base           string
	user, password string
	http           *http.Client
}

func (a *app) client(ctx context.Context) (*client, error) {
	if err := a.settings(); err != nil {
		return nil, err
	}
	c := &client{ctx: ctx, base: strings.TrimSuffix(a.url, "/") + "/api/", user: a.user, password: a.password}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if a.caFile != "" {
		pem, err := os.ReadFile(a.caFile)
		if err != nil {
			return nil, UsageError{fmt.Errorf("--ca-file: %w", err)}
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, usage("--ca-file %s holds no certificate", a.caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	c.http = &http.Client{Transport: transport, Timeout: requestTime}
	return c, nil
}

// refused is a node's answer that it did not do what was asked.
type refused struct {
	status int
	reason string
}

func (r *refused) Error() string { return r.reason }

// missing reports whether an error says that there is no such thing.
func missing(err error) bool {
	r, ok := errors.AsType[*refused](err)
	return ok && r.status == http.StatusNotFound
}

func (c *client) get(path string, out any) error  { return c.do(http.MethodGet, path, nil, out, nil) }
func (c *client) put(path string, body any) error { return c.do(http.MethodPut, path, body, nil, nil) }
func (c *client) post(path string, body any) error {
	return c.do(http.MethodPost, path, body, nil, nil)
}
func (c *client) remove(path string) error { return c.do(http.MethodDelete, path, nil, nil, nil) }

// do sends a request and decodes the answer into out unless that is nil.
func (c *client) do(method, path string, body, out any, header http.Header) error {
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		content = bytes.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(c.ctx, method, c.base+path, content)
	if err != nil {
		return UsageError{err}
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.SetBasicAuth(c.user, c.password)
	resp, err := c.http.Do(req)
	if err != nil {
		return ConnectError{err}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return ConnectError{fmt.Errorf("%s %s: %w", method, req.URL, err)}
	}
	if resp.StatusCode >= 300 {
		return refusal(resp, answer)
	}
	if out == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s: the answer is not that of a node: %w", req.URL, err)
	}
	return nil
}

func refusal(resp *http.Response, answer []byte) error {
	var said struct {
		Error  string `json:"error"`
		Reason any    `json:"reason"`
	}
	reason := resp.Status
	if json.Unmarshal(answer, &said) == nil && said.Error != "" {
		reason = plain(fmt.Sprint(said.Reason), resp.Request.URL)
	}
	return &refused{resp.StatusCode, reason}
}
