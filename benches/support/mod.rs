//! What benches share: pairs of samples, and the time that work takes.

use std::fs;
use std::time::Instant;

/// Samples of a baseline and of the measurement, taken in alternation.
#[derive(Default)]
pub(crate) struct Pairs(Vec<(f64, f64)>);

impl Pairs {
    pub(crate) fn add(&mut self, baseline: f64, measured: f64) {
        self.0.push((baseline, measured));
    }

    /// Prints a row; its name has a column of `width` characters.
    pub(crate) fn print(&self, width: usize, name: &str, aim: &str) {
        let [baseline, measured] = [
            self.quantile(0.5, |pair| pair.0),
            self.quantile(0.5, |pair| pair.1),
        ];
        let ratio = self.quantile(0.5, |pair| pair.1 / pair.0);
        let [more, p10] = [0.5, 0.1].map(|share| self.quantile(share, |pair| pair.1 - pair.0));
        println!(
            "{name:<width$}{baseline:>9.2}{measured:>9.2}{ratio:>8.2}{more:>8.2}{p10:>8.2}  {aim}"
        );
    }

    fn quantile(&self, share: f64, value: fn(&(f64, f64)) -> f64) -> f64 {
        let mut sorted: Vec<f64> = self.0.iter().map(value).collect();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * share).round() as usize]
    }
}

/// Milliseconds of elapsed time and of CPU time, including reaped children.
pub(crate) fn cost(work: impl FnOnce()) -> [f64; 2] {
    let (cpu, begun) = (cpu(), Instant::now());
    work();
    [begun.elapsed().as_secs_f64() * 1000.0, self::cpu() - cpu]
}

fn cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ').skip(11);
    // The kernel counts them in hundredths of a second.
    let times = fields.take(4).map(|field| field.parse::<f64>().unwrap());
    times.sum::<f64>() * 10.0
}
