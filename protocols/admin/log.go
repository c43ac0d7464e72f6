package admin

import (
	"log"
	"strings"

	"github.com/rs/zerolog"
)

// errorLog gives net/http's own messages (TLS and panic reports) to the node's
// log.
func errorLog(to zerolog.Logger) *log.Logger { return log.New(lineWriter{to}, "", 0) }

type lineWriter struct{ log zerolog.Logger }

func (w lineWriter) Write(p []byte) (int, error) {
	w.log.Warn().Str("http", strings.TrimSpace(string(p))).Msg("http server")
	return len(p), nil
}
