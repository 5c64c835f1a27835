package report

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/harpcaller/harp/bench/internal/measure"
)

// The place of things in a panel of a plot.
const (
	width, height = 760, 320
	left, right   = 80, 170
	top, bottom   = 40, 50
)

// colours tell subjects apart, also for eyes that see less of them.
var colours = []string{"#d55e00", "#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#666666", "#000000", "#8c510a", "#5e3c99", "#b2182b"}

// plot draws a result's metrics over the size of the work, both logarithmic: a panel
// for each, one under the other.
func plot(r measure.Result) []byte {
	var b strings.Builder
	all := height * len(r.Metrics)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, all)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, all)
	for n, m := range r.Metrics {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", n*height)
		newCanvas(&b, r, m).draw(r)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// canvas is a panel that is being drawn.
type canvas struct {
	b          *strings.Builder
	axis       string
	metric     measure.Metric
	points     []int
	low, high  float64 // powers of ten around all values
	xmin, xmax float64
}

func newCanvas(b *strings.Builder, r measure.Result, m measure.Metric) *canvas {
	c := &canvas{b: b, axis: r.Axis, metric: m, points: points(r)}
	least, most := math.Inf(1), math.Inf(-1)
	for _, t := range r.Subjects {
		for _, p := range c.points {
			if v := value(t, p, c.metric.Name); v.N > 0 && v.Min > 0 {
				least, most = min(least, v.Min), max(most, v.Max)
			}
		}
	}
	if most < least {
		least, most = 1, 10
	}
	c.low, c.high = math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	if c.low == c.high {
		c.high++
	}
	c.xmin = math.Log(float64(max(1, c.points[0])))
	c.xmax = math.Log(float64(max(2, c.points[len(c.points)-1])))
	return c
}

func (c *canvas) draw(r measure.Result) {
	c.text(left, 22, "start", r.Workload+": "+c.metric.Name+" ("+c.metric.Unit+")")
	c.axes()
	for i, t := range r.Subjects {
		c.line(t, colours[i%len(colours)], i)
	}
}

func (c *canvas) x(point int) float64 {
	return left + (math.Log(float64(max(1, point)))-c.xmin)/(c.xmax-c.xmin)*(width-left-right)
}

func (c *canvas) y(v float64) float64 {
	return height - bottom - (math.Log10(v)-c.low)/(c.high-c.low)*(height-top-bottom)
}

func (c *canvas) text(x, y float64, anchor, s string) {
	fmt.Fprintf(c.b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
}

// axes draws the grid and what stands beside it.
func (c *canvas) axes() {
	for e := c.low; e <= c.high; e++ {
		y := c.y(math.Pow(10, e))
		fmt.Fprintf(c.b, `<path d="M%d %.1fH%d" stroke="#dddddd"/>`+"\n", left, y, width-right)
		c.text(left-8, y+4, "end", number(math.Pow(10, e)))
	}
	for _, p := range c.points {
		c.text(c.x(p), height-bottom+18, "middle", number(float64(p)))
	}
	c.text((left+width-right)/2, height-12, "middle", c.axis)
}

// line draws a subject: its medians, and from its least to its most.
func (c *canvas) line(t measure.Taken, colour string, i int) {
	var path strings.Builder
	for _, p := range c.points {
		v := value(t, p, c.metric.Name)
		if v.N == 0 || v.Min <= 0 {
			continue
		}
		x, y := c.x(p), c.y(v.Median)
		fmt.Fprintf(&path, "%s%.1f %.1f", pickString(path.Len() == 0, "M", "L"), x, y)
		fmt.Fprintf(c.b, `<path d="M%.1f %.1fV%.1f" stroke="%s" opacity="0.4" stroke-width="4"/>`+"\n", x, c.y(v.Min), c.y(v.Max), colour)
		fmt.Fprintf(c.b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x, y, colour)
	}
	if path.Len() == 0 {
		return
	}
	dash := pickString(t.Bound, ` stroke-dasharray="5 4"`, "")
	fmt.Fprintf(c.b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", path.String(), colour, dash)
	y := float64(top + 18*i)
	fmt.Fprintf(c.b, `<path d="M%d %.1fh20" stroke="%s" stroke-width="2"%s/>`+"\n", width-right+14, y, colour, dash)
	c.text(width-right+40, y+4, "start", t.Name)
}

func pickString(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}
