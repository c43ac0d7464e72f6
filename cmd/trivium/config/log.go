package config

import (
	"io"

	"github.com/rs/zerolog"
)

// Log is what the process tells on standard error.
type Log struct {
	Level  string `key:"level" default:"info" choice:"debug|info|warn|error" about:"least ''level'' that is told"`
	Format string `key:"format" default:"console" choice:"console|json" about:"''format'' of lines"`
}

// Logger returns a logger that writes to w.
func (l *Log) Logger(w io.Writer) zerolog.Logger {
	level, _ := zerolog.ParseLevel(l.Level) // one of the choices
	if l.Format == "console" {
		w = zerolog.ConsoleWriter{Out: w, NoColor: true, TimeFormat: "2006-01-02T15:04:05.000Z07:00"}
	}
	zerolog.TimeFieldFormat = zerolog.TimeFormatUnixMs
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}
