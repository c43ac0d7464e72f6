package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"
)

// addressOff as an address turns a listener off.
const addressOff = "off"

// Config is everything that can be set, in the order flag, environment
// (TRIVIUM_SECTION_KEY), file, default. Unknown keys are errors.
type Config struct {
	Node struct {
		ID   int    `yaml:"id"`   // of this node in its cluster, 1..2^31-1
		Data string `yaml:"data"` // data directory
	} `yaml:"node"`
	AMQP struct {
		Listen string `yaml:"listen"`
	} `yaml:"amqp"`
	MQTT struct {
		Listen string `yaml:"listen"`
	} `yaml:"mqtt"`
	Kafka struct {
		Listen    string `yaml:"listen"`
		Advertise string `yaml:"advertise"` // host:port told to clients; empty = the address they connected to
	} `yaml:"kafka"`
	HTTP struct {
		Listen string `yaml:"listen"`
	} `yaml:"http"`
	Cluster struct {
		Listen string `yaml:"listen"`
	} `yaml:"cluster"`
	Log struct {
		Level  string `yaml:"level"`  // debug, info, warn, error
		Format string `yaml:"format"` // json, console
	} `yaml:"log"`
}

func defaultConfig() Config {
	var c Config
	c.Node.ID, c.Node.Data = 1, "./data"
	c.AMQP.Listen = "127.0.0.1:5672"
	c.MQTT.Listen = "127.0.0.1:1883"
	c.Kafka.Listen = "127.0.0.1:9092"
	c.HTTP.Listen = "127.0.0.1:15672"
	c.Cluster.Listen = "127.0.0.1:7420"
	c.Log.Level, c.Log.Format = "info", "console"
	return c
}

// loadFile overlays the YAML file at path.
func (c *Config) loadFile(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("configuration %s: %s", path, oneLine(err))
	}
	return nil
}

// loadEnv overlays TRIVIUM_SECTION_KEY variables. A variable with the prefix
// that names no key is an error, so that a typing mistake is seen.
func (c *Config) loadEnv(environ []string) error {
	keys := c.keys()
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		rest, ok := strings.CutPrefix(name, "TRIVIUM_")
		if !ok || reservedEnv[rest] {
			continue
		}
		field, ok := keys[strings.ToLower(rest)]
		if !ok {
			return fmt.Errorf("environment: unknown setting %s", name)
		}
		if err := setField(field, value); err != nil {
			return fmt.Errorf("environment: %s: %w", name, err)
		}
	}
	return nil
}

// reservedEnv are names with our prefix that the project's own tests and
// scripts use; they are no settings.
var reservedEnv = map[string]bool{"BIN": true, "CRASH_ROUNDS": true, "HISTORIES": true, "SEED": true, "AMQP_ADDR": true}

// keys maps section_key to the field.
func (c *Config) keys() map[string]reflect.Value {
	out := map[string]reflect.Value{}
	root := reflect.ValueOf(c).Elem()
	for i := range root.NumField() {
		section := root.Type().Field(i).Tag.Get("yaml")
		for j := range root.Field(i).NumField() {
			key := root.Field(i).Type().Field(j).Tag.Get("yaml")
			out[section+"_"+key] = root.Field(i).Field(j)
		}
	}
	return out
}

func setField(f reflect.Value, value string) error {
	if f.Kind() == reflect.Int {
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", value)
		}
		f.SetInt(int64(n))
		return nil
	}
	f.SetString(value)
	return nil
}

// validate reports the first setting that cannot work.
func (c *Config) validate() error {
	if c.Node.ID < 1 || int64(c.Node.ID) > 1<<31-1 {
		return fmt.Errorf("node.id: %d is not between 1 and 2147483647", c.Node.ID)
	}
	if c.Node.Data == "" {
		return errors.New("node.data: empty")
	}
	for name, addr := range map[string]string{"amqp": c.AMQP.Listen, "mqtt": c.MQTT.Listen, "kafka": c.Kafka.Listen, "http": c.HTTP.Listen, "cluster": c.Cluster.Listen} {
		if err := validAddress(addr); addr != addressOff && err != nil {
			return fmt.Errorf("%s.listen: %w", name, err)
		}
	}
	if err := c.validateAdvertise(); err != nil {
		return err
	}
	if _, err := zerolog.ParseLevel(c.Log.Level); err != nil || c.Log.Level == "" {
		return fmt.Errorf("log.level: unknown level %q", c.Log.Level)
	}
	if c.Log.Format != "json" && c.Log.Format != "console" {
		return fmt.Errorf("log.format: %q is neither json nor console", c.Log.Format)
	}
	return nil
}

func (c *Config) validateAdvertise() error {
	if c.Kafka.Advertise == "" {
		return nil
	}
	if err := validAddress(c.Kafka.Advertise); err != nil {
		return fmt.Errorf("kafka.advertise: %w", err)
	}
	host, _, _ := net.SplitHostPort(c.Kafka.Advertise)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("kafka.advertise: %s is no address a client can connect to", c.Kafka.Advertise)
	}
	return nil
}

func validAddress(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is neither host:port nor off", addr)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q has no valid port", addr)
	}
	return nil
}

// oneLine joins the lines of an error, since start-up errors are one line.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

func (c *Config) logger(w io.Writer) zerolog.Logger {
	level, _ := zerolog.ParseLevel(c.Log.Level)
	if c.Log.Format == "console" {
		w = zerolog.ConsoleWriter{Out: w, NoColor: true, TimeFormat: "2006-01-02T15:04:05.000Z07:00"}
	}
	zerolog.TimeFieldFormat = zerolog.TimeFormatUnixMs
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}
